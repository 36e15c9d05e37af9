"""A plan in parts, for a backend that does not do all of it: what it runs, and what is left to another.

Pure data. Sources are left whole, or an image's last stages are, which go on from the pixels that the first gave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from accel.codec.engines import Pixels
from accel.codec.header import Raw
from accel.ops.index import Index
from accel.planning.plan import Decode, Plan
from accel.planning.stages import Axis, Pass, Stage
from accel.recipe import Source


class Partition(NamedTuple):
    """Parts of a plan: what a backend runs, what it leaves to another, and for each reason, of how many images."""

    own: Plan
    left: Plan
    reasons: Counter[str]


def partition(plan: Plan, refused: Callable[[Decode], str | None]) -> Partition:
    """Leave the sources that ``refused`` gives a reason for."""
    own: list[Decode] = []
    left: list[Decode] = []
    reasons: Counter[str] = Counter()
    for wanted in plan.decodes:
        reason = refused(wanted)
        (own if reason is None else left).append(wanted)
        if reason is not None:
            reasons[reason] += len(wanted.items)
    return Partition(plan._replace(decodes=tuple(own)), plan._replace(decodes=tuple(left)), reasons)


def reason_lines(reasons: Counter[str], to: str, of: int) -> list[str]:
    """Lines for ``accel.explain``: what of so many images is left to another backend."""
    return [f"left to the {to} backend, of {count} of {of} images: {reason}" for reason, count in reasons.items()]


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
            rows, columns = (Axis.as_it_is(Index.identity(size)) for size in (height, width))
            rest = (Pass(rows, columns, 0, ()), *rest)
        items = (items[0]._replace(stages=rest),)
    raw = Raw(width, height, "RGB" if channels == 3 else "L")
    source = Source(pixels.reshape(-1).data, raw, wanted.source.name, wanted.source.selection)
    return Decode(source, channels, (0, 0, height, width), items)
