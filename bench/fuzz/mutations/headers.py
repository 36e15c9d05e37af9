"""Changes of all that stands in front of the scans: frames, tables, metadata, and segments as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from bench.fuzz.files import encode, picture
from bench.fuzz.mutations.registry import Rng, in_segments, mutation, on_segments, replaced, somewhere
from bench.fuzz.segments import DHT, DNL, DQT, DRI, FRAMES, METADATA, SOI, SOS, File, Segment, adobe, joined, segments

in_segments("the frame header", 1, *FRAMES)
in_segments("a scan header", 1, SOS)
in_segments("quantisation tables", 2, DQT)
in_segments("Huffman tables", 2, DHT)
in_segments("metadata", 3, *METADATA)


def _frame_changed(file: File, rng: Rng, changes: dict[int, int]) -> Sequence[Segment]:
    """With other bytes at these places of a frame header, where it has them."""
    place = somewhere(file, rng, *FRAMES)
    payload = bytearray(file[place].payload)
    for at, value in changes.items():
        if at < len(payload):
            payload[at] = value
    return replaced(file, place, file[place]._replace(payload=bytes(payload)))


@on_segments("another size")
def _size(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    place = somewhere(file, rng, *FRAMES)
    changes: dict[int, int] = {}
    for at in rng.choice(((1,), (3,), (1, 3))):
        old = int.from_bytes(file[place].payload[at : at + 2], "big")
        new = rng.choice((0, 1, 2, old - 1, old + 1, old + 8, 2 * old, 1000, 65_500, 65_501, 65_535, rng.randrange(99)))
        changes |= {at: new >> 8 & 255, at + 1: new & 255}
    return _frame_changed(file, rng, changes)


@on_segments("other sampling factors")
def _sampling(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    factors = (0x11, 0x12, 0x21, 0x22, 0x41, 0x14, 0x44, 0x31, 0x13, 0x33, 0x23, 0x01, 0x10, 0x42, 0x55)
    return _frame_changed(file, rng, {at: rng.choice(factors) for at in (7, 10, 13, 16) if rng.random() < 0.6})


@on_segments("another precision")
def _precision(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    return _frame_changed(file, rng, {0: rng.choice((0, 1, 2, 7, 9, 12, 16, 255))})


@on_segments("other component identifiers")
def _identifiers(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    """In the frame header alone, or in the scans' too."""
    place = somewhere(file, rng, *FRAMES)
    old = file[place].payload[6::3]
    choices = (*range(5), 66, 71, 82, 255)
    told = {each: rng.choice(choices) for each in old if rng.random() < 0.7}
    changed = list(_frame_changed(file, rng, {6 + 3 * i: told.get(each, each) for i, each in enumerate(old)}))
    if rng.random() < 0.6:
        for at, segment in enumerate(changed):
            if segment.marker == SOS:
                payload = bytearray(segment.payload)
                payload[1:-3:2] = bytes(told.get(each, each) for each in payload[1:-3:2])
                changed[at] = segment._replace(payload=bytes(payload))
    return changed


@on_segments("another number of components")
def _components(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    place = somewhere(file, rng, *FRAMES)
    payload, count = file[place].payload, rng.choice((0, 1, 2, 3, 4, 5, 255))
    whole = payload[:5] + bytes([count]) + (payload[6:] * 3)[: 3 * count]
    alone = payload[:5] + bytes([count]) + payload[6:]
    return replaced(file, place, file[place]._replace(payload=rng.choice((whole, alone))))


@on_segments("another kind of frame")
def _frame(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    place = somewhere(file, rng, *FRAMES)
    return replaced(file, place, file[place]._replace(marker=rng.choice((*range(0xC0, 0xD0), 0xC0, 0xC1, 0xC2))))


@on_segments("another restart interval")
def _interval(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    interval = Segment(DRI, rng.choice((0, 1, 2, 3, 5, 64, 65_535)).to_bytes(2, "big"))
    file.insert(somewhere(file, rng, SOS), interval)
    return file


@on_segments("a number of lines")
def _lines(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    """DNL, with or without a height in the frame header."""
    lines = Segment(DNL, rng.choice((0, 1, 16, 48, 65_535)).to_bytes(2, "big"))
    if rng.random() < 0.4:
        file = list(_frame_changed(file, rng, {1: 0, 2: 0}))
    file.insert(rng.choice((rng.randint(0, len(file)), len(file) - 1, len(file))), lines)
    return file


@on_segments("an Adobe marker")
def _adobe(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    made = segments(adobe(rng.choice((0, 1, 2, 3, 255))))[0]
    if rng.random() < 0.3:
        made = made._replace(payload=made.payload[: rng.randint(0, 12)])
    if rng.random() < 0.5:
        file = [segment for segment in file if segment.marker != 0xE0]
    file.insert(rng.randint(0, somewhere(file, rng, SOS)) if file else 0, made)
    return file


@on_segments("a thumbnail in a segment")
def _thumbnail(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    small = encode(picture("smooth", 12, 16), quality=50)
    body = rng.choice((b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0", b"", b"JFXX\0\x10")) + small
    file.insert(rng.randint(1, max(somewhere(file, rng, SOS), 1)), Segment(rng.choice((*METADATA, 0xE2)), body))
    return file


@on_segments("tables of this file or another, again")
def _tables(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    tables = [segment for segment in (*file, *other) if segment.marker in (DQT, DHT)]
    if tables and rng.random() < 0.7:
        for _ in range(rng.randint(1, 3)):
            file.insert(rng.randint(0, len(file)), rng.choice(tables))
        return file
    marker = rng.choice((DQT, DHT))  # all in one segment
    own = b"".join(segment.payload for segment in file if segment.marker == marker)
    return [file[0], Segment(marker, own), *(segment for segment in file[1:] if segment.marker != marker)]


@on_segments("a Huffman table changed")
def _huffman(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    place = somewhere(file, rng, DHT)
    payload = bytearray(file[place].payload)
    if payload:
        at = rng.randrange(len(payload))
        payload[at] = rng.choice((payload[at] ^ 1, 0, 0xF0, 0x10, 0x0F, rng.randrange(256)))
    return replaced(file, place, file[place]._replace(payload=bytes(payload)))


@on_segments("a segment left out")
def _left_out(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    return replaced(file, rng.randrange(len(file)))


@on_segments("a segment doubled")
def _doubled(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    place = rng.randrange(len(file))
    return replaced(file, place, file[place], file[place])


@on_segments("a segment moved")
def _moved(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    segment = file.pop(rng.randrange(len(file)))
    file.insert(rng.randint(0, len(file)), segment)
    return file


@on_segments("a segment of another file put in")
def _put_in(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    file.insert(rng.randint(0, len(file)), rng.choice(other))
    return file


@on_segments("a segment of another file in place of this one's")
def _exchanged(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    segment = rng.choice(other)
    return replaced(file, somewhere(file, rng, segment.marker), segment)


@on_segments("segments shortened or lengthened")
def _resized(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(file))
        segment = file[place]
        size = rng.choice((0, 1, rng.randint(0, len(segment.payload)), max(len(segment.payload) - 1, 0)))
        longer = segment.payload + rng.randbytes(rng.randint(1, 9))
        file[place] = segment._replace(payload=rng.choice((segment.payload[:size], longer)))
    return file


@mutation("a wrong segment length")
def _wrong_length(data: bytes, other: bytes, rng: Rng) -> bytes:
    file = segments(data)
    place = rng.choice([place for place, segment in enumerate(file) if segment.marker] or [0])
    at, size = len(joined(file[:place])) + 2, len(file[place].payload) + 2
    wrong = rng.choice((0, 1, 2, 3, size - 1, size + 1, size + rng.randrange(2000), 0xFFFF))
    return data[:at] + (wrong & 0xFFFF).to_bytes(2, "big") + data[at + 2 :]


@on_segments("an empty segment")
def _empty(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    marker = rng.choice((*range(0xC4, 0xF1), 0xFD, 0xFE, 0x01, 0x02, 0xBF))
    made = bytes((0xFF, marker)) + rng.choice((0, 1, 2, 2, 3, 4)).to_bytes(2, "big")
    file.insert(rng.randint(1, max(somewhere(file, rng, SOS), 1)), Segment(0, made))
    return file


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


@on_segments("a segment made up")
def _made_up(file: File, other: File, rng: Rng) -> Sequence[Segment]:
    marker, payload = rng.choice(_MADE_UP)
    payload = payload[: rng.randint(0, len(payload))] if rng.random() < 0.3 else payload
    segment = Segment(marker, payload + rng.randbytes(rng.choice((0, 0, 1, 2, 5, 14, 80, 81))))
    file.insert(rng.randrange(1 + somewhere(file, rng, *FRAMES)), segment)
    return file


@mutation("beginnings put in")
def _beginnings(data: bytes, other: bytes, rng: Rng) -> bytes:
    file = segments(data)
    at = rng.randint(0, len(file))
    file[at:at] = [Segment(SOI)] * rng.randint(1, 2)
    return joined(file)
