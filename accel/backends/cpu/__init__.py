"""The ``cpu`` backend: decoding of regions, then one fused, compiled pass per image, on all cores.

``backend`` runs plans, ``stages`` runs an image's stages: ``passes`` and ``effects``. The compiled code is in
``pass_*.py`` and ``effect_*.py``; numba is imported only when something must be compiled.
"""

from accel.backends.cpu.backend import CpuBackend, CpuOptions

__all__ = ["CpuBackend", "CpuOptions"]
