"""The reference backend: what a plan means, said by Pillow and torchvision calls.

``backend`` is all of it.
"""

from accel.backends.reference.backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
