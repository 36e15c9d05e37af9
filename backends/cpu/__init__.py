"""The ``cpu`` backend: region decode, then one fused, compiled pass per image, on all cores.

``backend`` runs plans, ``stages`` an image's stages: ``passes`` and ``effects``. The compiled code is in ``pass_*.py``
and ``effect_*.py``; nothing imports numba before it must be compiled.
"""

from accel.backends.cpu.backend import CpuBackend, CpuOptions

__all__ = ["CpuBackend", "CpuOptions"]
