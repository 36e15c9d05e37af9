"""Steps that are the same each time a file comes: the longest prefix of a recipe whose result is worth keeping.

A guess from what came before: of each step in turn it is noted whether it was the same for all images, or the same
function of their size. A wrong guess costs bytes: a result is found by the exact steps that it is of.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from accel.ops import OPS
from accel.ops.row import ResampleOp
from accel.planning.order import Steps
from accel.recipe import Step
from accel.system import fork

Size = tuple[int, int]

ENOUGH = 8
"""Images for which a step came alike before it is taken for one that always does."""

_MOST = 256  # steps that are told apart: of many pipelines at once none would be deterministic
_END: Step = ("", ())
_OF_THE_FILE = ("convert",)  # grey files' alone


class _Came:
    """A step that came behind steps of certain names: how often, and with what."""

    __slots__ = ("count", "essence", "varies")

    def __init__(self, essence: tuple[Any, ...]) -> None:
        self.count, self.essence, self.varies = 0, essence, False


class Prefixes:
    """What was seen of recipes so far.

    Pipelines of one process (for training and for evaluation) are told apart by their first steps. Where further on
    now this step comes and now that one, neither does each time.
    """

    def __init__(self) -> None:
        self._lock = fork.Lock()
        self._places: dict[tuple[str, ...], dict[str, _Came]] = {}  # by the labels before, and its own

    def note(self, size: Size, steps: Steps) -> None:
        """Note the steps on the pixels of an image of this (height, width)."""
        names: tuple[str, ...] = ()
        with self._lock:
            for name, params in (*steps, _END):
                if name in _OF_THE_FILE:
                    continue
                place = self._places.get(names)
                if place is None:
                    if len(self._places) >= _MOST:
                        return
                    place = self._places[names] = {}
                label, essence = _label(name, params), _essence(size, name, params)
                came = place.get(label)
                if came is None:
                    came = place[label] = _Came(essence)
                came.count += 1
                came.varies |= came.essence != essence
                if came.varies or (names and len(place) > 1) or name == "":
                    return
                size, names = OPS[name].size(size, params), (*names, label)

    def length(self, steps: Steps) -> int | None:
        """How many of the first steps on pixels come each time; None where too few were seen to say so."""
        names: tuple[str, ...] = ()
        for number, (name, params) in enumerate((*steps, _END)):
            if name in _OF_THE_FILE:
                continue
            place, label = self._places.get(names, {}), _label(name, params)
            came = place.get(label)
            if came is None or came.varies or (names and len(place) > 1):
                return number
            if came.count < ENOUGH:
                return None
            names = (*names, label)
        return len(steps)


def _label(name: str, params: tuple[Any, ...]) -> str:
    """What a step is called; filters of a resize are of different pipelines."""
    return f"{name} {params[2:]}" if name and isinstance(OPS[name], ResampleOp) else name


def _essence(size: Size, name: str, params: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is the same of a step for images of all sizes, where the size alone decides the rest."""
    op = OPS.get(name)
    if isinstance(op, ResampleOp):
        return name, min(params[:2]), *params[2:]
    if name == "crop":
        top, left, height, width = params
        centred = abs(size[0] - height - 2 * top) <= 1 and abs(size[1] - width - 2 * left) <= 1
        return name, centred or (top, left), height, width
    return name, *params


def text(steps: Steps) -> bytes | None:
    """Steps as a text that no others have; None where a parameter is no plain value."""
    return repr(steps).encode() if all(_is_plain(params) for _, params in steps) else None


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or isinstance(value, Enum) or type(value) in (int, float, str, bool, bytes)


def resamples(steps: Steps) -> bool:
    """Whether a resize is among the steps."""
    return any(isinstance(OPS[name], ResampleOp) for name, _ in steps)
