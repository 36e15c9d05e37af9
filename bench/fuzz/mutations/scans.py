"""Changes of the scans: coded bytes, restart markers, other markers among them, and their order."""

from __future__ import annotations

import re

from bench.fuzz.mutations.registry import Mutation, Rng, anywhere, in_segments, on_payload, on_segments, put, somewhere
from bench.fuzz.segments import EOI, SOS, File, Segment, scan_of, segments


def _bits(data: bytes, other: bytes, rng: Rng) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        changed[anywhere(data, rng, scan_of(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _places(data: bytes, pattern: bytes, start: int = 0) -> list[int]:
    return [found.start() for found in re.compile(pattern).finditer(data, start)]


def _stuffing(data: bytes, other: bytes, rng: Rng) -> bytes:
    places = _places(data, rb"\xff\0")
    if places and rng.random() < 0.5:
        at = rng.choice(places) + 1
        return data[:at] + data[at + 1 :]
    return put(data, anywhere(data, rng, scan_of(data)), rng.choice((b"\xff\x00", b"\x00", b"\xff\x00\x00")))


def _restarts(data: bytes, other: bytes, rng: Rng) -> bytes:
    """Change, add, remove or exchange restart markers, remove bytes between them, or insert one where none belongs."""
    found, new = _places(data, rb"\xff[\xd0-\xd7]", scan_of(data)), bytes((0xFF, 0xD0 + rng.randrange(8)))
    if not found or rng.random() < 0.15:
        return put(data, rng.choice((anywhere(data, rng, scan_of(data)), max(len(data) - 2, 0))), new)
    at, second = rng.choice(found), rng.choice(found)
    exchanged = bytearray(data)
    exchanged[at + 1], exchanged[second + 1] = exchanged[second + 1], exchanged[at + 1]
    return rng.choice(
        (
            data[:at] + new + data[at + 2 :],
            put(data, at, new),
            put(data, at, data[at : at + 2]),
            data[:at] + data[at + 2 :],
            data[:at] + data[at + rng.randint(1, 60) :],
            bytes(exchanged),
        )
    )


def _markers(payload: bytes, rng: Rng) -> bytes:
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(payload) + 1)
        marker = rng.choice((*range(0xD0, 0xDA), 0xDA, 0xDB, 0xDC, 0xDD, 0xC0, 0xC4, 0xE0, 0xFE, 0xFF, 0x01, 0x42))
        tail = rng.choice((b"", b"", b"\x00\x02", b"\x00\x04\x00\x30", b"\xff\xff"))
        payload = payload[:at] + bytes((0xFF, marker)) + tail + payload[at + rng.choice((0, 2)) :]
    return payload


def _segments(file: File, other: File, rng: Rng) -> None:
    place = somewhere(file, rng, 0)
    segment = file[place]
    at = rng.randrange(len(segment.payload) + 1)
    inside = bytes(rng.choice([each for each in (*file, *other) if each.marker] or [Segment(SOS)]))
    file[place] = segment._replace(payload=put(segment.payload, at, inside))


def _order(file: File, other: File, rng: Rng) -> None:
    """Shuffle the scans, leave some out, or repeat one."""
    starts = [place for place, segment in enumerate(file) if segment.marker == SOS]
    if not starts:
        return
    end = next((place for place in range(len(file) - 1, 0, -1) if file[place].marker == EOI), len(file))
    parts = [file[start:stop] for start, stop in zip(starts, [*starts[1:], end], strict=True)]
    if rng.random() < 0.3:
        parts.append(rng.choice(parts))
    rng.shuffle(parts)
    kept = parts[: rng.randint(1, len(parts))]
    file[:] = [*file[: starts[0]], *(segment for part in kept for segment in part), *file[end:]]


def _scan(file: File, other: File, rng: Rng) -> None:
    place = somewhere(file, rng, 0)
    file[place] = rng.choice([segment for segment in other if not segment.marker] or other)


def _end(file: File, other: File, rng: Rng) -> None:
    """End the file within a scan; what follows is kept or removed."""
    place = somewhere(file, rng, 0)
    payload = file[place].payload
    at = rng.randrange(len(payload) + 1)
    rest = [Segment(0, payload[at:]), *file[place + 1 :]] if rng.random() < 0.5 else []
    file[place:] = [Segment(0, payload[:at]), Segment(EOI), *rest]


def _shifted(data: bytes, other: bytes, rng: Rng) -> bytes:
    """Shift everything from some place on by a few bits."""
    at = anywhere(data, rng, scan_of(data))
    rest, by = int.from_bytes(data[at:], "big"), rng.randint(1, 7)
    return data[:at] + (rest >> by).to_bytes(len(data) - at, "big")


def _ended(data: bytes) -> bytes:
    """The file without its last end marker and what follows."""
    at = data.rfind(bytes((0xFF, EOI)))
    return data[:at] if at > 0 else data


def _other_end(data: bytes, other: bytes, rng: Rng) -> bytes:
    end = rng.choice(
        (b"", b"\0", b"\xff", b"\xff\xff", b"\xff\0", bytes(70_000), b"\x7f", b"\xff\x01", b"\xff\xd9" * 2)
    )
    behind = rng.choice((b"", b"\0", b"junk" * 30, b"\xff\xd8\xff", other))
    return _ended(data) + end + rng.choice((b"\xff\xd9", b"")) + behind


def _behind(data: bytes, other: bytes, rng: Rng) -> bytes:
    found = [bytes(segment) for segment in segments(other) if segment.marker] or [other]
    return _ended(data) + b"".join(rng.choice(found) for _ in range(rng.randint(1, 3))) + bytes((0xFF, EOI))


MUTATIONS: dict[str, Mutation] = {
    **in_segments("the scan", 4, 0),
    "bits behind the scan header": _bits,
    "stuffing left out or put in": _stuffing,
    "fill bytes": lambda data, other, rng: (  # before markers, where they are allowed, and stuffing, where they are not
        put(data, rng.choice(_places(data, rb"\xff") or [0]), b"\xff" * rng.choice((1, 2, 50)))
    ),
    "restart markers changed": _restarts,
    "markers in the scan": on_payload(_markers, 0),
    "segments in the scan": on_segments(_segments),
    "scans in another order": on_segments(_order),
    "a scan of another file": on_segments(_scan),
    "an end in the scan": on_segments(_end),
    "a cut between the scan's bits": _shifted,
    "the scan alone random": on_payload(
        lambda payload, rng: rng.randbytes(len(payload)).replace(b"\xff", rng.choice((b"\xff\x00", b"\xfe"))), 0
    ),
    "another end": _other_end,
    "segments behind the scan": _behind,
}
