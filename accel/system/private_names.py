"""Private names of torch, torchvision and Pillow that accel builds on.

Any version may drop one. A file that uses one declares it here first, so that accel can be imported without it, and
switching to a backend says what is missing (``check``) before anything is done with it.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any, NoReturn

import PIL
import torch
import torchvision

from accel.errors import BackendUnavailable

TESTED = {"torch": ("2.11", "2.15"), "torchvision": ("0.26", "0.29"), "Pillow": ("11.1", "13.0")}
"""The oldest and the newest version of each library that the tests have run with."""

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


def newer() -> list[str]:
    """The installed libraries that are newer than those that were tested, each with its version."""
    return [f"{name} {now}" for name, now in _installed().items() if _number(now) > _number(TESTED[name][1])]


def _installed() -> dict[str, str]:
    return {"torch": str(torch.__version__), "torchvision": torchvision.__version__, "Pillow": PIL.__version__}


def _number(version: str) -> list[int]:
    """The first two numbers of a version, which also one before a release has."""
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


def check(*others: str) -> None:
    """Refuse if Python runs without its GIL, or a declared name is missing; ``others``: further names that are."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        refuse("this Python runs without its GIL, which was not tested (PYTHON_GIL=1 turns it on)")
    if missing := dict.fromkeys((*_missing, *others)):
        refuse(f"they lack {', '.join(missing)}")


def refuse(reason: str) -> NoReturn:
    """Say that accel cannot work with the installed libraries.

    Raises:
        BackendUnavailable: always, with the reason and the versions that accel is tested with.
    """
    installed = ", ".join(map(" ".join, _installed().items()))
    tested = ", ".join(f"{name} {oldest} to {newest}" for name, (oldest, newest) in TESTED.items())
    raise BackendUnavailable(f"accel cannot work with {installed}: {reason}. It is tested with {tested}.")
