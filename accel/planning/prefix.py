"""Steps that are the same each time a file comes: the longest prefix of a recipe whose result is worth keeping.

It is guessed from earlier batches: a step counts as constant if it was the same, or the same function of the size, for
all images of a batch, again and again. Pipelines of one process (for training and for evaluation) come in separate
batches, and are told apart by that. A wrong guess only wastes memory: a result is found by its exact steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any
from zlib import crc32

from accel.ops import OPS
from accel.ops.row import ResampleOp
from accel.planning.order import Steps
from accel.recipes.recipe import Step
from accel.system import fork

Size = tuple[int, int]

ENOUGH = 8
"""The number of images with an equal step after which it counts as constant; smaller batches are not judged."""

_TIMES = 8  # how many times more often a constant step is equal for a whole batch than mixed with others by chance
_FEW = 4  # the most resizes in a batch that are not taken for random ones
_MOST = 64  # the most steps that are told apart at one place
_END: Step = ("", ())
_OF_THE_FILE = ("convert",)  # steps that only grey files have


class _Came:
    """A step that all images of a batch had at a place: the number of such images (``alike``), and of images with it in
    mixed batches."""

    __slots__ = ("alike", "mixed", "next")

    def __init__(self, mixed: int) -> None:
        self.alike, self.mixed, self.next = 0, mixed, _Place()


class _Place:
    """The steps that came after certain steps; ``mixed``: the number of images in mixed batches, by a step's name."""

    __slots__ = ("mixed", "steps")

    def __init__(self) -> None:
        self.mixed: dict[str, int] = {}
        self.steps: dict[tuple[Any, ...], _Came] = {}

    def mix(self, groups: Mapping[tuple[Any, ...], Sequence[Any]]) -> None:
        """Note that images came together whose steps here differ."""
        count = sum(map(len, groups.values()))
        for label in {essence[0] for essence in groups}:
            self.mixed[label] = self.mixed.get(label, 0) + count
        for essence, images in groups.items():
            if essence in self.steps:
                self.steps[essence].mixed += len(images)


class Prefixes:
    """The recipes seen so far, as a tree of steps."""

    def __init__(self) -> None:
        self._lock = fork.Lock()
        self._first = _Place()
        self._few: list[tuple[Size, Steps]] = []

    def note(self, images: Sequence[tuple[Size, Steps]]) -> None:
        """Note the (height, width) of images that came together, and their steps on pixels."""
        with self._lock:
            few = len(images) < ENOUGH
            images = [*self._few, *images] if few else images  # an epoch's small last batch waits for others
            self._few = list(images) if len(images) < ENOUGH else []
            if self._few:
                return
            self._note(self._first, [(size, _own(steps), 0) for size, steps in images])

    def _note(self, place: _Place, images: Sequence[tuple[Size, Steps, int]]) -> None:
        """Note the steps at a place, and those after it; each image has the number of its step there."""
        groups: dict[tuple[Any, ...], list[tuple[Size, Steps, int]]] = {}
        for size, steps, number in images:
            name, params = steps[number] if number < len(steps) else _END
            after = OPS[name].size(size, params) if name else size
            groups.setdefault(_essence(size, name, params), []).append((after, steps, number + 1))
        if len(groups) > 1 and not _are_few_resizes(groups, len(images)):
            place.mix(groups)
            return
        for essence, some in groups.items():
            if essence not in place.steps and len(place.steps) < _MOST:
                place.steps[essence] = _Came(min(place.mixed.get(essence[0], 0), ENOUGH))
            came = place.steps.get(essence)
            if came is not None:
                came.alike += len(some)
                if essence[0]:
                    self._note(came.next, some)

    def length(self, size: Size, steps: Steps) -> int | None:
        """The number of first steps on pixels that are constant; None if too few images were seen to tell."""
        place = self._first
        for number, (name, params) in enumerate(steps):
            if name in _OF_THE_FILE:
                continue
            essence = _essence(size, name, params)
            came = place.steps.get(essence)
            if came is None or came.alike < max(ENOUGH, _TIMES * came.mixed):
                return number if place.mixed.get(essence[0], 0) >= ENOUGH else None
            size, place = OPS[name].size(size, params), came.next
        return len(steps)


def pipeline(size: Size, steps: Steps) -> int:
    """A number that identifies the steps of a pipeline, the same for images of all sizes."""
    essences = list[tuple[Any, ...]]()
    for name, params in _own(steps):
        essences.append(_same(size, name, params))
        size = OPS[name].size(size, params)
    return crc32(repr(essences).encode())


def _are_few_resizes(groups: Mapping[tuple[Any, ...], Sequence[Any]], count: int) -> bool:
    """Whether the groups are a few pipelines with different resizes, each of which should keep its own results."""
    resizes = all(isinstance(OPS.get(essence[0]), ResampleOp) for essence in groups)
    return resizes and len(groups) <= _FEW and _FEW * 2 * min(map(len, groups.values())) >= count


def _own(steps: Steps) -> Steps:
    return tuple([step for step in steps if step[0] not in _OF_THE_FILE])


def _essence(size: Size, name: str, params: tuple[Any, ...]) -> tuple[Any, ...]:
    """The part of a step that is the same for images of all sizes, if the size alone decides the rest; hashable."""
    essence = _same(size, name, params)
    try:
        hash(essence)
        return essence
    except TypeError:
        return name, repr(essence)


def _same(size: Size, name: str, params: tuple[Any, ...]) -> tuple[Any, ...]:
    op = OPS.get(name)
    if isinstance(op, ResampleOp):
        return name, min(params[:2]), *params[2:]
    if name == "crop":
        top, left, height, width = params
        centred = abs(size[0] - height - 2 * top) <= 1 and abs(size[1] - width - 2 * left) <= 1
        return name, centred or (top, left), height, width
    return name, *params


def text(steps: Steps) -> bytes | None:
    """Steps as an unambiguous text; None if a parameter is no plain value."""
    return repr(steps).encode() if all(_is_plain(params) for _, params in steps) else None


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or isinstance(value, Enum) or type(value) in (int, float, str, bool, bytes)


def resamples(steps: Steps) -> bool:
    """Whether there is a resize among the steps."""
    return any(isinstance(OPS[name], ResampleOp) for name, _ in steps)
