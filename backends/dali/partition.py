"""A batch shared out: what DALI decodes, what it finishes, and what another backend does from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from accel.codec import decode
from accel.codec.engines import Pixels
from accel.codec.header import Header, Raw
from accel.planning.plan import Decode, Plan
from accel.recipe import Source
from accel.system import counters

from .lower import Work, decoding, lower, refused, split
from .pipelines import Part, Pipelines, Row
from .program import Structure

UNDECODABLE = "DALI cannot decode a file; the cpu backend decides"


class Shares(NamedTuple):
    """What becomes of a plan: DALI finishes some images, in their order in the batch, and begins others; the rest are
    left as they are.
    """

    finished: list[Work]
    begun: list[Work]
    left: list[Decode]
    reasons: dict[str, int]

    @property
    def given(self) -> list[Work]:
        """All that DALI is given."""
        return self.finished + self.begun


def shared_out(plan: Plan, *, exact: bool, on_host: bool) -> Shares:
    """Decide what DALI does of a plan.

    Args:
        exact: decode, and nothing else.
        on_host: where DALI does not finish, what it has done is at hand for others. Without, such images are decoded
            by DALI's CPU operators, and all the rest is left.
    """
    shares = Shares([], [], [], {})
    for wanted in plan.decodes:
        no = refused(wanted)
        if no is not None:
            shares.left.append(wanted)
            _count(shares, no, wanted)
        elif exact:
            _begin(shares, decoding(wanted))
        else:
            for each in split(wanted):
                work = lower(each, interleaved=plan.interleaved)
                if work.reason is None:
                    shares.finished.append(work)
                    continue
                _count(shares, work.reason, each)
                _begin(shares, work if on_host else decoding(each))
    shares.finished.sort(key=_position)  # as in the batch, whatever images share a file
    return shares


def _position(work: Work) -> int:
    return work.wanted.items[0].position


def _begin(shares: Shares, work: Work) -> None:
    nothing = work.structure.source == "pixels" and not work.structure.operators
    if nothing:
        shares.left.append(work.wanted)
    else:
        shares.begun.append(work)


def _count(shares: Shares, reason: str, wanted: Decode) -> None:
    shares.reasons[reason] = shares.reasons.get(reason, 0) + len(wanted.items)


def begin(works: Sequence[Work], pipelines: Pipelines) -> list[Decode]:
    """Run what DALI begins, on the host; decodes of its pixels, and of the files that it cannot decode."""
    found = []
    for group, part in _run(works, pipelines):
        for number, work in enumerate(group):
            if part.outputs is None:
                counters.fallback(UNDECODABLE)
                found.append(work.wanted)
            else:
                found.append(_from_pixels(work, np.asarray(part.outputs[number])))
    return found


def _from_pixels(work: Work, pixels: Pixels) -> Decode:
    """What is left of a decode, from DALI's pixels on."""
    height, width, channels = pixels.shape
    source = work.wanted.source
    raw = Raw(width, height, "RGB" if channels == 3 else "L")
    items = work.wanted.items
    if work.rest:
        items = (items[0]._replace(stages=work.rest),)
    data = pixels.reshape(-1).data
    return Decode(Source(data, raw, source.name, source.selection), channels, (0, 0, height, width), items)


class Values(NamedTuple):
    """Final values [images, channels, height, width], and the places of the images in the batch."""

    positions: list[int]
    tensor: torch.Tensor


def finish(works: Sequence[Work], pipelines: Pipelines, plan: Plan) -> tuple[list[Values], list[Decode]]:
    """Run what DALI finishes; the values, and the files that it cannot decode."""
    found, left = [], []
    for group, part in _run(works, pipelines):
        if part.outputs is None:
            counters.fallback(UNDECODABLE)
            left.append(group[0].wanted)
        else:
            values = from_dlpack(part.outputs.as_tensor())
            values = values.permute(0, 3, 1, 2) if plan.interleaved else values
            found.append(Values([_position(work) for work in group], values))
    return found, left


def merge(parts: Iterable[Values], result: torch.Tensor) -> None:
    """Copy values to their places; launches alone, where that is on a GPU."""
    for positions, tensor in parts:
        for first, count in _runs(positions):
            place = positions[first]
            result[place : place + count].copy_(tensor[first : first + count])


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where successive positions begin, and how many they are."""
    first = 0
    for number in range(1, len(positions) + 1):
        if number == len(positions) or positions[number] != positions[number - 1] + 1:
            yield first, number - first
            first = number


def _run(works: Sequence[Work], pipelines: Pipelines) -> Iterator[tuple[list[Work], Part]]:
    """Run works, those of one structure together; each part with its works."""
    groups: dict[Structure, list[Work]] = {}
    for work in works:
        groups.setdefault(work.structure, []).append(work)
    for structure, group in groups.items():
        for part in pipelines.run(structure, [_row(work) for work in group]):
            yield group[part.first : part.first + part.images], part


def _row(work: Work) -> Row:
    source = work.wanted.source
    header, data = source.header, source.data
    pixels: Any = data if isinstance(header, Header) else decode.raw(data, header, work.box, work.wanted.channels)
    return Row(pixels, work.box, work.fed)
