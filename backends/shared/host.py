"""The host backend that accelerators build on, as they see it."""

from __future__ import annotations

from accel.backend import HostBackend


class ComparedHost(HostBackend):
    """A host backend that has compared its kernels, whose arithmetic accelerators repeat, with what is installed."""

    def agrees(self, op: str) -> bool:
        """Whether its kernel of an op ("resize" among them) equals the installed Pillow and torchvision."""
        raise NotImplementedError
