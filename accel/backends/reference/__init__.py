"""The ``reference`` backend: plans run by plain calls of Pillow and torchvision, which define what they mean.

All of it is in ``backend``.
"""

from accel.backends.reference.backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
