"""The mutations' table, and small changes of which many are made."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from bench.fuzz.segments import File, Segment, joined, segments

Rng = random.Random
Mutation = Callable[[bytes, bytes, Rng], bytes]
SegmentMutation = Callable[[File, File, Rng], Sequence[Segment]]

MUTATIONS: dict[str, Mutation] = {}


def mutation(name: str) -> Callable[[Mutation], Mutation]:
    """Enter a function of bytes."""

    def add(function: Mutation) -> Mutation:
        MUTATIONS[name] = function
        return function

    return add


def on_segments(name: str) -> Callable[[SegmentMutation], SegmentMutation]:
    """Enter a function of segments, of which there is at least one."""

    def add(function: SegmentMutation) -> SegmentMutation:
        MUTATIONS[name] = lambda data, other, rng: joined(function(segments(data), segments(other), rng))
        return function

    return add


def somewhere(file: Sequence[Segment], rng: Rng, *markers: int) -> int:
    """The place of one of the segments with these markers (0: coded bytes), or of any if there are none."""
    places = [place for place, segment in enumerate(file) if segment.marker in markers]
    return rng.choice(places or range(len(file)))


def replaced(file: Sequence[Segment], place: int, *segments: Segment) -> list[Segment]:
    return [*file[:place], *segments, *file[place + 1 :]]


def put(data: bytes, at: int, more: bytes) -> bytes:
    return data[:at] + more + data[at:]


def anywhere(data: bytes, rng: Rng, start: int = 0) -> int:
    """A place in the bytes from ``start`` on, if there are any."""
    return rng.randrange(min(start, len(data) - 1), len(data))


def some_bytes(payload: bytes, rng: Rng, change: Callable[[int], int], most: int = 1) -> bytes:
    """With one to ``most`` bytes changed, where there are any."""
    changed = bytearray(payload)
    for _ in range(rng.randint(1, most)):
        if changed:
            at = rng.randrange(len(changed))
            changed[at] = change(changed[at])
    return bytes(changed)


def flip(rng: Rng) -> Callable[[int], int]:
    """A change of one bit."""
    return lambda byte: byte ^ 1 << rng.randrange(8)


def another(rng: Rng) -> Callable[[int], int]:
    """A change to another byte."""
    return lambda byte: rng.choice((rng.randrange(256), 0, 0xFF, 0x7F, 0x80))


def in_segments(name: str, most: int, *markers: int) -> None:
    """Enter a change of bits, and one of bytes, in the segments with these markers."""
    for how, change in (("bits", flip), ("bytes", another)):

        def mutate(
            file: File, other: File, rng: Rng, change: Callable[[Rng], Callable[[int], int]] = change
        ) -> Sequence[Segment]:
            place = somewhere(file, rng, *markers)
            payload = some_bytes(file[place].payload, rng, change(rng), most)
            return replaced(file, place, file[place]._replace(payload=payload))

        on_segments(f"{how} in {name}")(mutate)
