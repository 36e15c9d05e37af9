"""Notes on exceptions: which file, which sample, which place in the batch they came from.

Nothing is kept for them in advance: the file's name is looked for in the frames that an exception has passed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from traceback import walk_tb
from types import FrameType
from typing import Any

from PIL import Image

from accel.errors import AccelError
from accel.system import log

SHOWN_BY_PYTHON = sys.version_info >= (3, 11)
"""Whether tracebacks show an exception's ``__notes__``."""

_OURS = "accel: "
_READERS = ("PIL", "torchvision", "accel")
_NAMES = ("filename", "path", "fp", "f", "file", "input")
_MOST = 16


class Indices(list[Any]):
    """The indices of a batch, which know how far an iteration over them has come.

    Attributes:
        place: the place of the index that was yielded last; None before the first and after the last.
    """

    place: int | None = None

    def __iter__(self) -> Iterator[Any]:
        for self.place, index in enumerate(super().__iter__()):
            yield index
        self.place = None


def locate(error: Exception, index: Any) -> None:
    """Note on an exception, which the caller has caught while it made samples, where it came from.

    An exception that passed no code that reads images is left alone.

    Args:
        index: the sample's index in the dataset, or ``Indices`` or other indices of a batch; None if there is none.
    """
    passed = [frame for frame, _ in walk_tb(error.__traceback__)][1:]  # the first is the caller's
    if not any(_module(frame) in _READERS for frame in passed):
        return
    file = None if isinstance(error, AccelError) else _file(passed)  # accel's own errors name the file themselves
    found = [] if file is None else [f"file {file}"]
    if not isinstance(index, (list, tuple)):
        found += [] if index is None else [f"dataset index {index}"]
    elif (place := getattr(index, "place", None)) is not None:
        found.append(f"image {place} of a batch of {len(index)}")
        found += [] if index[place] is None else [f"dataset index {index[place]}"]
    elif None not in index:
        more = ["..."] if len(index) > _MOST else []
        found.append(f"one of the dataset indices {', '.join([*map(str, index[:_MOST]), *more])}")
    if found:
        add(error, ", ".join(found))


def passed(error: Exception, function: Any) -> bool:
    """Whether an exception has passed a function."""
    return any(frame.f_code is function.__code__ for frame, _ in walk_tb(error.__traceback__))


def add(error: BaseException, text: str) -> None:
    """Note a text on an exception, in place of accel's earlier note; on Python 3.10 it is also logged."""
    others = [note for note in getattr(error, "__notes__", ()) if not str(note).startswith(_OURS)]
    error.__notes__ = [*others, _OURS + text]
    if not SHOWN_BY_PYTHON:
        log.note(log.WARNING, "%s: %s (%s)", type(error).__name__, error, text)


def _file(passed: list[FrameType]) -> str | None:
    """The name of the file in the last of these frames that has one; None if none has."""
    for frame in reversed(passed):
        if _module(frame) in _READERS:
            variables = frame.f_locals
            image = variables.get("self")
            holders = [image.__dict__] if isinstance(image, Image.Image) else []
            values = (holder.get(name) for holder in (*holders, variables) for name in _NAMES)
            if (name := next(filter(None, map(_name, values)), None)) is not None:
                return name
    return None


def _name(value: Any) -> str | None:
    """The name of a path or an open file; None for other values."""
    try:
        return os.fsdecode(value if isinstance(value, (str, bytes, os.PathLike)) else value.name) or None
    except Exception:  # neither a path nor a file
        return None


def _module(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__") or ""
    return name.partition(".")[0]
