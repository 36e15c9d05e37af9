"""Making mutations from functions: of a file's segments, of one segment's payload, of single bits and bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from bench.fuzz.segments import File, Segment, joined, segments

Rng = random.Random
Mutation = Callable[[bytes, bytes, Rng], bytes]


def on_segments(change: Callable[[File, File, Rng], object]) -> Mutation:
    """A mutation from a function that changes a file's list of segments in place; it has at least one."""

    def mutate(data: bytes, other: bytes, rng: Rng) -> bytes:
        file = segments(data)
        change(file, segments(other), rng)
        return joined(file)

    return mutate


def on_segment(change: Callable[[Segment, Rng], Sequence[Segment]], *markers: int) -> Mutation:
    """A mutation from a function of a segment with one of these markers, which returns its replacement."""

    def mutate(file: File, other: File, rng: Rng) -> None:
        place = somewhere(file, rng, *markers)
        file[place : place + 1] = change(file[place], rng)

    return on_segments(mutate)


def on_payload(change: Callable[[bytes, Rng], bytes], *markers: int) -> Mutation:
    """A mutation from a function of the payload of a segment with one of these markers."""
    return on_segment(lambda segment, rng: [segment._replace(payload=change(segment.payload, rng))], *markers)


def in_segments(name: str, most: int, *markers: int) -> dict[str, Mutation]:
    """Two mutations of segments with these markers: a change of bits, and one of bytes."""
    return {
        f"{what} in {name}": on_payload(partial(some_bytes, change, most), *markers)
        for what, change in (("bits", flipped), ("bytes", another))
    }


def somewhere(file: Sequence[Segment], rng: Rng, *markers: int) -> int:
    """The place of a random segment with one of these markers (0: coded bytes), or of any if there is none."""
    places = [place for place, segment in enumerate(file) if segment.marker in markers]
    return rng.choice(places or range(len(file)))


def put(data: bytes, at: int, more: bytes) -> bytes:
    return data[:at] + more + data[at:]


def anywhere(data: bytes, rng: Rng, start: int = 0) -> int:
    """A random place in the bytes from ``start`` on, if there are any."""
    return rng.randrange(min(start, len(data) - 1), len(data))


def some_bytes(change: Callable[[int, Rng], int], most: int, payload: bytes, rng: Rng) -> bytes:
    """The payload with one to ``most`` bytes changed, if it has any."""
    changed = bytearray(payload)
    for _ in range(rng.randint(1, most)):
        if changed:
            at = rng.randrange(len(changed))
            changed[at] = change(changed[at], rng)
    return bytes(changed)


def flipped(byte: int, rng: Rng) -> int:
    """The byte with one bit changed."""
    return byte ^ 1 << rng.randrange(8)


def another(byte: int, rng: Rng) -> int:
    return rng.choice((rng.randrange(256), 0, 0xFF, 0x7F, 0x80))
