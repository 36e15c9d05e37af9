"""The ``dali`` backend: plans run as NVIDIA DALI pipelines, on a GPU or by DALI's CPU operators.

``backend`` runs plans: ``lower`` says what of each image DALI can do (``levels``, ``effects``: the ops it has an
equivalent for), ``graph`` makes pipelines of that, ``pipelines`` keeps and feeds them. What DALI cannot do, the
``cpu`` or ``cuda`` backend does as a following stage. Nothing here imports DALI before a plan runs.
"""

from .backend import DaliBackend, DaliOptions

__all__ = ["DaliBackend", "DaliOptions"]
