"""A plan in parts, for a backend that does not support all of it: what it runs, and what is left to another.

Pure data. Sources are left whole, or an image's last stages are, which go on from the pixels that the first gave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from accel.codec.engines import Pixels
from accel.codec.header import Raw
from accel.ops.index import Index
from accel.planning.plan import Decode, Plan
from accel.planning.stages import Axis, Pass, Stage
from accel.recipe import Source


class Partition(NamedTuple):
    """The part of a plan that a backend runs, and the part left to another, with the reason for each source of it."""

    own: Plan
    left: Plan
    reasons: list[str]

    def told(self, to: str) -> list[str]:
        """Lines for ``accel.explain`` about what is left."""
        images: Counter[str] = Counter()
        for reason, wanted in zip(self.reasons, self.left.decodes, strict=True):
            images[reason] += len(wanted.items)
        return told(images, to, self.left.shape[0])


def partition(plan: Plan, supports: Callable[[Stage], str | None]) -> Partition:
    """Leave the sources of which an image has a stage that ``supports`` gives a reason against."""
    own: list[Decode] = []
    left: list[Decode] = []
    reasons: list[str] = []
    for wanted in plan.decodes:
        stages = (stage for item in wanted.items for stage in item.stages)
        reason = next((found for found in map(supports, stages) if found is not None), None)
        if reason is None:
            own.append(wanted)
        else:
            left.append(wanted)
            reasons.append(reason)
    return Partition(plan._replace(decodes=tuple(own)), plan._replace(decodes=tuple(left)), reasons)


def told(images: dict[str, int], to: str, of: int) -> list[str]:
    """A line for every reason why images are left to another backend, with how many."""
    return [f"left to the {to} backend, of {count} of {of} images: {reason}" for reason, count in images.items()]


def positions(decodes: Iterable[Decode]) -> list[int]:
    """The places in the batch of all images made of these sources, in order."""
    return sorted([item.position for wanted in decodes for item in wanted.items])


def split(wanted: Decode) -> list[Decode]:
    """A source of several images as one for each, of no more than it reads."""
    if len(wanted.items) == 1:
        return [wanted]
    found = []
    for item in wanted.items:
        first = item.stages[0]
        top, left, height, width = first.reads
        own = item._replace(stages=(first.onto(first.reads), *item.stages[1:]))
        box = (wanted.box[0] + top, wanted.box[1] + left, height, width)
        found.append(Decode(wanted.source, wanted.channels, box, (own,)))
    return found


def going_on(wanted: Decode, pixels: Pixels, rest: tuple[Stage, ...] | None) -> Decode:
    """What is left of a source, from pixels [height, width, channels] on.

    ``rest``: the stages that its only image has left; None: what was done so far is to decode it.
    """
    height, width, channels = pixels.shape
    items = wanted.items
    if rest is not None:
        if not rest or not isinstance(rest[0], Pass):  # a chain begins and ends with a pass, if one that shows all
            rows, columns = (Axis(Index.identity(size), size, Index.identity(size)) for size in (height, width))
            rest = (Pass(rows, columns, 0, ()), *rest)
        items = (items[0]._replace(stages=rest),)
    raw = Raw(width, height, "RGB" if channels == 3 else "L")
    source = Source(pixels.reshape(-1).data, raw, wanted.source.name, wanted.source.selection)
    return Decode(source, channels, (0, 0, height, width), items)
