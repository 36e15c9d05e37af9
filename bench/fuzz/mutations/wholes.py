"""The file as a whole: bits and bytes anywhere, cuts, files one behind the other."""

from __future__ import annotations

import struct

from bench.fuzz.mutations.registry import Mutation, Rng, another, anywhere, flipped, put, some_bytes
from bench.fuzz.segments import Segment, joined, segments

_SOI, _EOI = b"\xff\xd8", b"\xff\xd9"


def _cut_segment(data: bytes, other: bytes, rng: Rng) -> bytes:
    file = segments(data)
    kept = joined(file[: rng.randint(0, len(file))])
    return kept + rng.choice((b"", b"\xff", _EOI, b"\xff\xda", data[len(kept) :][: rng.randint(1, 12)]))


def _put_in(data: bytes, other: bytes, rng: Rng) -> bytes:
    more = rng.choice((rng.randbytes(rng.randint(1, 9)), b"\xff", b"\xff\xff\xff", bytes(4)))
    return put(data, anywhere(data, rng, 2), more)


def _overwritten(data: bytes, other: bytes, rng: Rng) -> bytes:
    at, size = anywhere(data, rng, 2), rng.choice((8, 64, 512))
    filling = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size), other[at : at + size]))
    return data[:at] + filling + data[at + size :]


def _moved(data: bytes, other: bytes, rng: Rng) -> bytes:
    at, size = anywhere(data, rng, 2), rng.choice((1, 2, 16, 64, 512))
    stretch, rest = data[at : at + size], rng.choice((data, data[:at] + data[at + size :]))
    return put(rest, rng.randint(0, len(rest)), stretch)


def _headed(data: bytes, other: bytes, rng: Rng) -> bytes:
    at = data.find(b"\xff\xda")
    header = data[: at if at > 0 else len(data) // 2]
    return header + other[max(other.find(rng.choice((b"\xff\xda", b"\xff\xc4"))), 2) :]


def _several(data: bytes, other: bytes, rng: Rng) -> bytes:
    """Put a multi-picture segment (CIPA DC-007), correct or not, in front of two files."""
    order, start = (">", b"MM\0*") if rng.random() < 0.5 else ("<", b"II*\0")
    count, first = rng.choice((1, 2, 2, 3, 99)), len(data) + rng.choice((0, 0, 100, -20))
    entries = (0xB000, 7, 4, b"0100"), (0xB001, 4, 1, count), (0xB002, 7, 16 * count, 50)
    head = start + struct.pack(f"{order}IHHHI4sHHIIHHIII", 8, 3, *(value for entry in entries for value in entry), 0)
    for size, at in ((first, 0), (len(other), first - rng.choice((4, 8, 30)))):
        head += struct.pack(f"{order}4I", 0x030000, size & 0xFFFFFFFF, at & 0xFFFFFFFF, 0)
    body = b"MPF\0" + head[: rng.choice((len(head), len(head), rng.randint(0, len(head))))]
    return data[:2] + bytes(Segment(0xE2, body)) + data[2:] + other


def _some(rng: Rng, most: int) -> bytes:
    return rng.randbytes(rng.randint(1, most))


MUTATIONS: dict[str, Mutation] = {
    "bits anywhere": lambda data, other, rng: some_bytes(flipped, 3, data, rng),
    "bytes anywhere": lambda data, other, rng: some_bytes(another, 8, data, rng),
    "cut anywhere": lambda data, other, rng: data[: anywhere(data, rng)],
    "cut near the end": lambda data, other, rng: data[: -rng.randint(1, 20)],
    "cut, with an end marker": lambda data, other, rng: data[: anywhere(data, rng, 2)] + _EOI,
    "cut in or between segments": _cut_segment,
    "bytes left out": lambda data, other, rng: (
        data[: (at := anywhere(data, rng, 2))] + data[at + rng.choice((1, 1, 2, 3, 17, 200)) :]
    ),
    "bytes put in": _put_in,
    "a stretch overwritten": _overwritten,
    "a stretch doubled or moved": _moved,
    "the ends of two files exchanged": lambda data, other, rng: (
        data[: anywhere(data, rng, 2)] + other[anywhere(other, rng, 2) :]
    ),
    "two files joined": lambda data, other, rng: data + rng.choice((data, other, other[: len(other) // 2], other[2:])),
    "two files joined, the first without its end": lambda data, other, rng: (
        data[: rng.choice((-2, -1, -30, len(data) // 2))] + rng.choice((data, other, other[2:]))
    ),
    "a header and another file's picture": _headed,
    "several pictures in one file": _several,
    "garbage behind the file": lambda data, other, rng: (
        data + rng.choice((_some(rng, 99), _EOI, _SOI, b"\xff" * 9, bytes(70_000)))
    ),
    "garbage in place of the end": lambda data, other, rng: (
        data[:-2] + rng.choice((_some(rng, 99), b"\xff" * 9, bytes(9), _SOI))
    ),
    "garbage before the file": lambda data, other, rng: (
        rng.choice((_some(rng, 9), _SOI, b"\xff", bytes(1), data[: rng.randint(1, 40)])) + data
    ),
    "nothing but random bytes": lambda data, other, rng: (
        rng.choice((b"", b"\xff\xd8\xff", data[: rng.randint(0, len(data))]))
        + rng.randbytes(rng.choice((0, 1, 3, 50, 900)))
    ),
}
