"""``torch.profiler``: while it runs, accel's stages appear as ranges named ``accel::...``."""

from __future__ import annotations

from typing import Any

from torch.autograd.profiler import record_function

from accel.hooks.patch import Body, Function
from accel.system.timing import measuring


def _start(original: Function, self: Any, *args: Any, **kwargs: Any) -> Any:
    measuring.show(record_function)
    return original(self, *args, **kwargs)


def _exit(original: Function, self: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return original(self, *args, **kwargs)
    finally:
        measuring.show(None)


PATCHES = (
    Body("torch.autograd.profiler.profile._start_trace", _start),
    Body("torch.autograd.profiler.profile.__exit__", _exit),
)
