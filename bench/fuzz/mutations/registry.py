"""Forms of mutations: of a file's segments, of one segment's payload, of single bits and bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from bench.fuzz.segments import File, Segment, joined, segments

Rng = random.Random
Mutation = Callable[[bytes, bytes, Rng], bytes]
SegmentMutation = Callable[[File, File, Rng], Sequence[Segment]]


def on_segments(function: SegmentMutation) -> Mutation:
    """A mutation from a function of segments, of which there is at least one."""
    return lambda data, other, rng: joined(function(segments(data), segments(other), rng))


def on_payload(change: Callable[[bytes, Rng], bytes], *markers: int) -> Mutation:
    """A mutation from a function of the payload of one of the segments with these markers."""

    def mutate(file: File, other: File, rng: Rng) -> Sequence[Segment]:
        place = somewhere(file, rng, *markers)
        return replaced(file, place, file[place]._replace(payload=change(file[place].payload, rng)))

    return on_segments(mutate)


def in_segments(name: str, most: int, *markers: int) -> dict[str, Mutation]:
    """A change of bits, and one of bytes, in the segments with these markers."""
    return {
        f"bits in {name}": on_payload(lambda payload, rng: some_bytes(payload, rng, flip(rng), most), *markers),
        f"bytes in {name}": on_payload(lambda payload, rng: some_bytes(payload, rng, another(rng), most), *markers),
    }


def somewhere(file: Sequence[Segment], rng: Rng, *markers: int) -> int:
    """The place of one of the segments with these markers (0: coded bytes), or of any if there are none."""
    places = [place for place, segment in enumerate(file) if segment.marker in markers]
    return rng.choice(places or range(len(file)))


def replaced(file: Sequence[Segment], place: int, *segments: Segment) -> list[Segment]:
    return [*file[:place], *segments, *file[place + 1 :]]


def with_more(file: File, place: int, *segments: Segment) -> File:
    return [*file[:place], *segments, *file[place:]]


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
