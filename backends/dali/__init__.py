"""The ``dali`` backend: plans run as NVIDIA DALI pipelines, on a GPU or by DALI's CPU operators.

``backend`` runs plans: ``partition`` shares a batch out, ``lowering`` makes DALI's part in each image a chain of
operators (``index_maps``, ``lut``, ``effects``), ``pipeline`` builds those, ``pipeline_pool`` keeps and feeds them.
What DALI cannot do, the ``cpu`` or ``cuda`` backend does as a following stage. Nothing imports DALI before a plan runs.
"""

from accel.backends.dali.backend import DaliBackend, DaliOptions

__all__ = ["DaliBackend", "DaliOptions"]
