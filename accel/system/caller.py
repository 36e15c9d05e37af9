"""Who asked: for messages about what ended a fusion."""

from __future__ import annotations

import sys

_LIBRARIES = ("PIL.", "accel.", "numpy.", "torch.")


def caller() -> str:
    """The innermost torchvision function, or place in the user's code, that is being run."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module, function = f"{frame.f_globals.get('__name__', '?')}.", frame.f_code.co_name
        if module.startswith("torchvision."):
            return module + function
        if not module.startswith(_LIBRARIES):
            break
        frame = frame.f_back
    file = frame.f_code.co_filename.rsplit("/", 1)[-1]
    return f"{frame.f_code.co_name} ({file}:{frame.f_lineno})"
