"""The host backend that accelerators build on, as they see it."""

from __future__ import annotations

from typing import Protocol

from accel.backend import HostBackend
from accel.planning.plan import Plan


class ReferenceHost(HostBackend, Protocol):
    """A host backend that has compared its kernels, whose arithmetic accelerators repeat, with what is installed."""

    def agrees(self, op: str) -> bool:
        """Whether its kernel of an op ("resize" among them) equals the installed Pillow and torchvision."""

    def left_to_torchvision(self, plan: Plan) -> list[str]:
        """Lines for ``accel.explain`` about the effects that torchvision runs."""
