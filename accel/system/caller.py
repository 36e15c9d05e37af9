"""The caller of accel's code, for messages about what ended a fusion."""

from __future__ import annotations

import sys
from types import FrameType

_CLOCKS = ("accel.system.timing.clocks", "accel.profiling.")
_LIBRARIES = ("PIL.", "accel.", "numpy.", "torch.")
_WAYS_IN = ("torchvision.transforms.v2.functional._utils.", "torchvision.transforms.v2._transform.")
"""Modules through which every function and every transform of v2 is called."""


def frame(depth: int) -> FrameType:
    """The frame ``depth`` levels above the caller's, not counting those of clocks."""
    found = sys._getframe(depth + 1)
    while found.f_globals.get("__name__", "").startswith(_CLOCKS) and found.f_back is not None:
        found = found.f_back
    return found


def caller() -> str:
    """The innermost torchvision function, or place in the user's code, on the stack."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module, code = f"{frame.f_globals.get('__name__', '?')}.", frame.f_code
        if module.startswith("torchvision.") and module not in _WAYS_IN:
            name: str = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has none
            return module + name
        if not module.startswith((*_LIBRARIES, *_WAYS_IN)):
            break
        frame = frame.f_back
    file = frame.f_code.co_filename.rsplit("/", 1)[-1]
    return f"{frame.f_code.co_name} ({file}:{frame.f_lineno})"
