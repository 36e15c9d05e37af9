"""Private names of torch, torchvision and Pillow that accel builds on.

Any version may drop one. A file that uses one declares it here first, so that accel can be imported without it, and
switching to a backend says what is missing (``check``) before anything is done with it.
"""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any, NoReturn

import PIL
import torch
import torchvision

from accel.errors import BackendUnavailable

_TESTED = "torch 2.11 to 2.15, torchvision 0.26 to 0.29, Pillow 11.1 to 13.0"
_missing: list[str] = []


def private(module: str, *names: str) -> Any:
    """Import a module for the use of these (dotted) names of it; a stand-in that raises on use if there is none."""
    try:
        found = import_module(module)
    except ImportError:
        _missing.append(module)
        found = ModuleType(module)
        found.__getattr__ = lambda name: refuse(f"they lack {module}")  # type: ignore[method-assign]
        return found
    for name in names:
        try:
            attrgetter(name)(found)
        except AttributeError:
            _missing.append(f"{module}.{name}")
    return found


def check(*others: str) -> None:
    """Refuse if a declared name is missing; ``others``: further names that are missing."""
    if missing := dict.fromkeys((*_missing, *others)):
        refuse(f"they lack {', '.join(missing)}")


def refuse(reason: str) -> NoReturn:
    """Say that accel cannot work with the installed libraries.

    Raises:
        BackendUnavailable: always, with the reason and the versions that accel is tested with.
    """
    installed = f"torch {torch.__version__}, torchvision {torchvision.__version__}, Pillow {PIL.__version__}"
    raise BackendUnavailable(f"accel cannot work with {installed}: {reason}. It is tested with {_TESTED}.")
