"""Parts of a plan, for a backend that cannot run all of it: the part that it runs, and the one for another backend.

Pure data. Either whole sources are left, or an image's last stages, which go on from the pixels of the first ones.
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
from accel.recipes.recipe import Source


class Partition(NamedTuple):
    """Parts of a plan: the one that a backend runs, the one that it leaves, and the number of images by reason."""

    own: Plan
    left: Plan
    reasons: Counter[str]


def partition(plan: Plan, refused: Callable[[Decode], str | None]) -> Partition:
    """Split a plan, leaving the sources that ``refused`` returns a reason for."""
    own: list[Decode] = []
    left: list[Decode] = []
    reasons: Counter[str] = Counter()
    for decode in plan.decodes:
        reason = refused(decode)
        (own if reason is None else left).append(decode)
        if reason is not None:
            reasons[reason] += len(decode.items)
    return Partition(plan._replace(decodes=tuple(own)), plan._replace(decodes=tuple(left)), reasons)


def reason_lines(reasons: Counter[str], to: str, of: int) -> list[str]:
    """Lines for ``accel.explain``: how many of so many images are left to another backend, by reason."""
    return [f"left to the {to} backend, of {count} of {of} images: {reason}" for reason, count in reasons.items()]


def split(decode: Decode) -> list[Decode]:
    """A decode with several images as one per image, each with only the box that the image reads."""
    if len(decode.items) == 1:
        return [decode]
    found = []
    for item in decode.items:
        first = item.stages[0]
        top, left, height, width = first.reads
        own = item._replace(stages=(first.onto(first.reads), *item.stages[1:]))
        box = (decode.box[0] + top, decode.box[1] + left, height, width)
        found.append(Decode(decode.source, decode.channels, box, (own,)))
    return found


def going_on(decode: Decode, pixels: Pixels, rest: tuple[Stage, ...] | None) -> Decode:
    """The rest of a decode, with pixels [height, width, channels] as its source.

    ``rest``: the remaining stages of its only image; None: the pixels are only decoded, and all stages remain.
    """
    height, width, channels = pixels.shape
    items = decode.items
    if rest is not None:
        if not rest or not isinstance(rest[0], Pass):  # a chain must begin with a pass, even an idle one
            rows, columns = (Axis.as_it_is(Index.identity(size)) for size in (height, width))
            rest = (Pass(rows, columns, 0, ()), *rest)
        items = (items[0]._replace(stages=rest),)
    raw = Raw(width, height, "RGB" if channels == 3 else "L")
    source = Source(pixels.reshape(-1).data, raw, decode.source.name, decode.source.selection)
    return Decode(source, channels, (0, 0, height, width), items)
