"""Changes of everything before the scans: frames, tables, metadata, and segments as a whole."""

from __future__ import annotations

from bench.fuzz.files import encode, picture
from bench.fuzz.mutations.registry import Mutation, Rng, in_segments, on_payload, on_segment, on_segments, somewhere
from bench.fuzz.segments import DHT, DNL, DQT, DRI, FRAMES, METADATA, SOI, SOS, File, Segment, adobe, joined, segments


def _changed(payload: bytes, changes: dict[int, int]) -> bytes:
    """The payload with other bytes at these places, if it has them."""
    return bytes(changes.get(at, byte) for at, byte in enumerate(payload))


def _size(payload: bytes, rng: Rng) -> bytes:
    changes: dict[int, int] = {}
    for at in rng.choice(((1,), (3,), (1, 3))):
        old = int.from_bytes(payload[at : at + 2], "big")
        new = rng.choice((0, 1, 2, old - 1, old + 1, old + 8, 2 * old, 1000, 65_500, 65_501, 65_535, rng.randrange(99)))
        changes |= {at: new >> 8 & 255, at + 1: new & 255}
    return _changed(payload, changes)


def _identifiers(file: File, other: File, rng: Rng) -> None:
    """Change component identifiers in the frame header, and sometimes in the scans' headers too."""
    place = somewhere(file, rng, *FRAMES)
    told = {each: rng.choice((*range(5), 66, 71, 82, 255)) for each in file[place].payload[6::3] if rng.random() < 0.7}
    changes = [(place, slice(6, None, 3))]
    if rng.random() < 0.6:
        changes += [(at, slice(1, -3, 2)) for at, segment in enumerate(file) if segment.marker == SOS]
    for at, identifiers in changes:
        payload = bytearray(file[at].payload)
        payload[identifiers] = bytes(told.get(each, each) for each in payload[identifiers])
        file[at] = file[at]._replace(payload=bytes(payload))


def _interval(file: File, other: File, rng: Rng) -> None:
    interval = Segment(DRI, rng.choice((0, 1, 2, 3, 5, 64, 65_535)).to_bytes(2, "big"))
    file.insert(somewhere(file, rng, SOS), interval)


def _lines(file: File, other: File, rng: Rng) -> None:
    """Insert DNL, with or without a height in the frame header."""
    lines = Segment(DNL, rng.choice((0, 1, 16, 48, 65_535)).to_bytes(2, "big"))
    if rng.random() < 0.4:
        place = somewhere(file, rng, *FRAMES)
        file[place] = file[place]._replace(payload=_changed(file[place].payload, {1: 0, 2: 0}))
    file.insert(rng.choice((rng.randint(0, len(file)), len(file) - 1, len(file))), lines)


def _adobe(file: File, other: File, rng: Rng) -> None:
    made = segments(adobe(rng.choice((0, 1, 2, 3, 255))))[0]
    if rng.random() < 0.3:
        made = made._replace(payload=made.payload[: rng.randint(0, 12)])
    if rng.random() < 0.5:
        file[:] = [segment for segment in file if segment.marker != 0xE0]
    file.insert(rng.randint(0, somewhere(file, rng, SOS)) if file else 0, made)


def _thumbnail(file: File, other: File, rng: Rng) -> None:
    small = encode(picture("smooth", 12, 16), quality=50)
    body = rng.choice((b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0", b"", b"JFXX\0\x10")) + small
    file.insert(_in_front(file, rng), Segment(rng.choice((*METADATA, 0xE2)), body))


def _in_front(file: File, rng: Rng) -> int:
    """A random place before a scan, and behind the first segment."""
    return rng.randint(1, max(somewhere(file, rng, SOS), 1))


def _tables(file: File, other: File, rng: Rng) -> None:
    tables = [segment for segment in (*file, *other) if segment.marker in (DQT, DHT)]
    if tables and rng.random() < 0.7:
        for _ in range(rng.randint(1, 3)):
            file.insert(rng.randint(0, len(file)), rng.choice(tables))
        return
    marker = rng.choice((DQT, DHT))  # all in one segment
    own = b"".join(segment.payload for segment in file if segment.marker == marker)
    file[1:] = [Segment(marker, own), *(segment for segment in file[1:] if segment.marker != marker)]


def _huffman(payload: bytes, rng: Rng) -> bytes:
    if not payload:
        return payload
    at = rng.randrange(len(payload))
    return _changed(payload, {at: rng.choice((payload[at] ^ 1, 0, 0xF0, 0x10, 0x0F, rng.randrange(256)))})


def _moved(file: File, other: File, rng: Rng) -> None:
    segment = file.pop(rng.randrange(len(file)))
    file.insert(rng.randint(0, len(file)), segment)


def _exchanged(file: File, other: File, rng: Rng) -> None:
    segment = rng.choice(other)
    file[somewhere(file, rng, segment.marker)] = segment


def _resized(file: File, other: File, rng: Rng) -> None:
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(file))
        payload = file[place].payload
        size = rng.choice((0, 1, rng.randint(0, len(payload)), max(len(payload) - 1, 0)))
        longer = payload + rng.randbytes(rng.randint(1, 9))
        file[place] = file[place]._replace(payload=rng.choice((payload[:size], longer)))


def _wrong_length(data: bytes, other: bytes, rng: Rng) -> bytes:
    file = segments(data)
    place = rng.choice([place for place, segment in enumerate(file) if segment.marker] or [0])
    at, size = len(joined(file[:place])) + 2, len(file[place].payload) + 2
    wrong = rng.choice((0, 1, 2, 3, size - 1, size + 1, size + rng.randrange(2000), 0xFFFF))
    return data[:at] + (wrong & 0xFFFF).to_bytes(2, "big") + data[at + 2 :]


def _empty(file: File, other: File, rng: Rng) -> None:
    marker = rng.choice((*range(0xC4, 0xF1), 0xFD, 0xFE, 0x01, 0x02, 0xBF))
    made = bytes((0xFF, marker)) + rng.choice((0, 1, 2, 2, 3, 4)).to_bytes(2, "big")
    file.insert(_in_front(file, rng), Segment(0, made))


_MADE_UP: tuple[tuple[int, bytes], ...] = (
    *((0xE0, payload) for payload in (b"JFIF\0\1\1", b"JFXX\0")),
    *((0xE1, payload) for payload in (b"Exif\0\0", b"Exif\0\0II*\0\x08\0\0\0\1\0", b"http://ns.adobe.com/xap/1.0/\0")),
    *((0xE2, payload) for payload in (b"ICC_PROFILE\0", b"ICC_PROFILE\0\1\1", b"ICC_PROFILE\0\1\2", b"FPXR\0")),
    *((0xE2, payload) for payload in (b"MPF\0", b"MPF\0II*\0\x08\0\0\0")),
    *((0xED, b"Photoshop 3.0\x00" + payload) for payload in (b"", b"8BIM", b"8BIM\x04\x04")),
    *((0xED, b"Photoshop 3.0\x008BIM" + payload) for payload in (b"\x04\x04\0\0\0\0\0\x028BIM8BIM",)),
    *((0xED, b"Photoshop 3.0\x008BIM" + payload) for payload in (b"\x03\xed\0\0\0\0\0\x10",)),
    *((0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform])) for transform in (0, 1)),
    *((0xFE, b"comment"), (DNL, b"\0\x30"), (DRI, b"\0\4"), (DQT, b"\0"), (DHT, b"\0"), (0xDE, b""), (0xDF, b"\x11")),
    *((0xF0, payload) for payload in (b"\xff\xc0\0\x11\x08\0\x10\0\x10\3\1\x11\0\2\x11\0\3\x11\0", b"")),
    (0xCC, b"\0\0"),
)


def _made_up(file: File, other: File, rng: Rng) -> None:
    marker, payload = rng.choice(_MADE_UP)
    payload = payload[: rng.randint(0, len(payload))] if rng.random() < 0.3 else payload
    segment = Segment(marker, payload + rng.randbytes(rng.choice((0, 0, 1, 2, 5, 14, 80, 81))))
    file.insert(rng.randrange(1 + somewhere(file, rng, *FRAMES)), segment)


def _beginnings(file: File, other: File, rng: Rng) -> None:
    at = rng.randint(0, len(file))
    file[at:at] = [Segment(SOI)] * rng.randint(1, 2)


_FACTORS = (0x11, 0x12, 0x21, 0x22, 0x41, 0x14, 0x44, 0x31, 0x13, 0x33, 0x23, 0x01, 0x10, 0x42, 0x55)

MUTATIONS: dict[str, Mutation] = {
    **in_segments("the frame header", 1, *FRAMES),
    **in_segments("a scan header", 1, SOS),
    **in_segments("quantisation tables", 2, DQT),
    **in_segments("Huffman tables", 2, DHT),
    **in_segments("metadata", 3, *METADATA),
    "another size": on_payload(_size, *FRAMES),
    "other sampling factors": on_payload(
        lambda payload, rng: _changed(
            payload, {at: rng.choice(_FACTORS) for at in (7, 10, 13, 16) if rng.random() < 0.6}
        ),
        *FRAMES,
    ),
    "another precision": on_payload(
        lambda payload, rng: _changed(payload, {0: rng.choice((0, 1, 2, 7, 9, 12, 16, 255))}), *FRAMES
    ),
    "other component identifiers": on_segments(_identifiers),
    "another number of components": on_payload(
        lambda payload, rng: (
            payload[:5]
            + bytes([count := rng.choice((0, 1, 2, 3, 4, 5, 255))])
            + rng.choice(((payload[6:] * 3)[: 3 * count], payload[6:]))
        ),
        *FRAMES,
    ),
    "another kind of frame": on_segment(
        lambda segment, rng: [segment._replace(marker=rng.choice((*range(0xC0, 0xD0), 0xC0, 0xC1, 0xC2)))], *FRAMES
    ),
    "another restart interval": on_segments(_interval),
    "a number of lines": on_segments(_lines),
    "an Adobe marker": on_segments(_adobe),
    "a thumbnail in a segment": on_segments(_thumbnail),
    "tables of this file or another, again": on_segments(_tables),
    "a Huffman table changed": on_payload(_huffman, DHT),
    "a segment left out": on_segment(lambda segment, rng: []),
    "a segment doubled": on_segment(lambda segment, rng: [segment, segment]),
    "a segment moved": on_segments(_moved),
    "a segment of another file put in": on_segments(
        lambda file, other, rng: file.insert(rng.randint(0, len(file)), rng.choice(other))
    ),
    "a segment of another file in place of this one's": on_segments(_exchanged),
    "segments shortened or lengthened": on_segments(_resized),
    "a wrong segment length": _wrong_length,
    "an empty segment": on_segments(_empty),
    "a segment made up": on_segments(_made_up),
    "beginnings put in": on_segments(_beginnings),
}
