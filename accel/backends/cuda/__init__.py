"""The ``cuda`` backend: the whole batch in a few launches on a GPU, or on the host through the same sources.

``backend`` runs plans: ``lowering`` makes a ``schedule`` of launches (``effects`` adds the stages that are none of its
own), which is executed on a ``device``. The kernels are the .cu files, whose headers declare their descriptors, which
``declarations`` reads; ``compile`` builds the kernels for a GPU, ``host`` for the host.
"""

from accel.backends.cuda.backend import CudaBackend, CudaOptions

__all__ = ["CudaBackend", "CudaOptions"]
