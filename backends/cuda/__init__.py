"""The ``cuda`` backend: the whole batch in a few launches on a GPU, or on the host through the same sources.

``backend`` runs plans: ``lower`` makes programs of them (``passes`` and ``effects`` add the stages), ``execute`` runs
those on a ``device``. The kernels are the .cu files, ``stage.h`` and ``effects/effect.h`` what they are told;
``compile`` builds them for a GPU, ``host`` for the host.
"""

from .backend import CudaBackend, CudaOptions

__all__ = ["CudaBackend", "CudaOptions"]
