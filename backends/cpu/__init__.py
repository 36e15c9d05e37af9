"""The ``cpu`` backend: region decode, then one fused, compiled pass per image, on all cores.

``backend`` runs plans, ``kernels`` holds the compiled pass; nothing here imports numba before a plan runs.
"""

from .backend import CpuBackend, CpuOptions

__all__ = ["CpuBackend", "CpuOptions"]
