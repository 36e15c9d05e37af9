"""The ``dali`` backend: plans run as NVIDIA DALI pipelines, on a GPU or with DALI's CPU operators.

``backend`` runs plans: ``partition`` divides a batch, ``lowering`` makes DALI's part in each image a chain of operators
(``index_maps``, ``lut``, ``effects``), ``pipeline`` builds, keeps and feeds those. The ``cpu``
or ``cuda`` backend then does what DALI cannot. DALI is not imported before a plan runs.
"""

from accel.backends.dali.backend import DaliBackend, DaliOptions

__all__ = ["DaliBackend", "DaliOptions"]
