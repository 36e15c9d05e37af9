"""Mutated JPEG files. A mutant is a function of its number and the seed; ``judge.py`` uses them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import helpers

SOI, EOI = b"\xff\xd8", b"\xff\xd9"
SOF = (0xC0, 0xC1, 0xC2)
MAX_PIXELS = 1 << 20  # Pillow refuses twice as many; so that a huge header costs neither of the two much time

Rng = random.Random


class Piece(NamedTuple):
    """A marker with its payload, or the entropy-coded bytes behind an SOS (restart markers included; ``marker`` 0)."""

    marker: int
    payload: bytes

    def __bytes__(self) -> bytes:
        if not self.marker:
            return self.payload
        return bytes((0xFF, self.marker)) + (len(self.payload) + 2).to_bytes(2, "big") + self.payload


File = list[Piece]
"""What stands between SOI and EOI."""


def pieces(data: bytes) -> File:
    """An intact file's pieces."""
    found, at = [], len(SOI)
    while data[at : at + 2] != EOI:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        found.append(Piece(data[at + 1], data[at + 4 : end]))
        at = end
        if found[-1].marker == 0xDA:
            while data[end] != 0xFF or data[end + 1] == 0 or 0xD0 <= data[end + 1] <= 0xD7:
                end += 1
            found.append(Piece(0, data[at:end]))
            at = end
    return found


def joined(file: Sequence[Piece]) -> bytes:
    return SOI + b"".join(map(bytes, file)) + EOI


@cache
def originals() -> tuple[bytes, ...]:
    """Small files of every kind of encoding, with every kind of metadata."""
    tags, profile = helpers.exif(), b"profile" * 30
    return (
        helpers.jpeg(61, 50, subsampling=0, quality=70),
        helpers.jpeg(67, 45, subsampling=1),
        helpers.jpeg(99, 73, subsampling=2, quality=60),
        helpers.jpeg(64, 64, subsampling=2, optimize=True),
        helpers.jpeg(52, 59, "L"),
        helpers.jpeg(75, 55, restart_marker_blocks=2),
        helpers.jpeg(56, 72, "L", restart_marker_rows=1),
        helpers.jpeg(70, 60, subsampling=0, restart_marker_rows=2, exif=tags),
        helpers.jpeg(83, 66, progressive=True),
        helpers.jpeg(48, 58, "L", progressive=True, restart_marker_blocks=3),
        helpers.jpeg(57, 71, progressive=True, subsampling=0, exif=tags, icc_profile=profile),
        helpers.jpeg(80, 43, exif=tags, icc_profile=profile, comment=b"a comment", optimize=True),
        helpers.jpeg(40, 40, "CMYK"),
        helpers.jpeg(128, 96, quality=97, exif=helpers.exif(8), dpi=(72, 72)),
    )


# -- mutations: (file, another file, random numbers) -> bytes -----------------------------------------------------

Mutation = Callable[[bytes, bytes, Rng], bytes]
MUTATIONS: dict[str, Mutation] = {}


def _mutation(name: str) -> Callable[[Mutation], Mutation]:
    def add(function: Mutation) -> Mutation:
        MUTATIONS[name] = function
        return function

    return add


def _on_pieces(name: str) -> Callable[[Callable[[File, File, Rng], Sequence[Piece]]], object]:
    def add(function: Callable[[File, File, Rng], Sequence[Piece]]) -> object:
        MUTATIONS[name] = lambda data, other, rng: joined(function(pieces(data), pieces(other), rng))
        return function

    return add


def _some_bytes(payload: bytes, rng: Rng, change: Callable[[int], int], most: int = 1) -> bytes:
    changed = bytearray(payload)
    for _ in range(rng.randint(1, most)):
        if changed:
            at = rng.randrange(len(changed))
            changed[at] = change(changed[at])
    return bytes(changed)


def _flip(rng: Rng) -> Callable[[int], int]:
    return lambda byte: byte ^ 1 << rng.randrange(8)


def _byte(rng: Rng) -> Callable[[int], int]:
    return lambda byte: rng.choice((rng.randrange(256), 0, 0xFF, 0x7F, 0x80))


def _somewhere(file: File, rng: Rng, *markers: int) -> int:
    """The place of one of the pieces with these markers (0: the coded bytes), or of any if there are none."""
    places = [place for place, piece in enumerate(file) if piece.marker in markers]
    return rng.choice(places or range(len(file)))


def _in_pieces(name: str, most: int, *markers: int) -> None:
    for how, change in (("bit", _flip), ("byte", _byte)):

        def mutate(
            file: File, other: File, rng: Rng, change: Callable[[Rng], Callable[[int], int]] = change
        ) -> Sequence[Piece]:
            place = _somewhere(file, rng, *markers)
            payload = _some_bytes(file[place].payload, rng, change(rng), most)
            return [*file[:place], file[place]._replace(payload=payload), *file[place + 1 :]]

        _on_pieces(f"{how}s in {name}")(mutate)


_in_pieces("the frame header", 1, *SOF)
_in_pieces("a scan header", 1, 0xDA)
_in_pieces("quantisation tables", 2, 0xDB)
_in_pieces("Huffman tables", 2, 0xC4)
_in_pieces("metadata", 3, 0xE0, 0xE1, 0xE2, 0xED, 0xEE, 0xFE)
_in_pieces("the scan", 4, 0)


@_mutation("bits anywhere")
def _bits_anywhere(data: bytes, other: bytes, rng: Rng) -> bytes:
    return _some_bytes(data, rng, _flip(rng), 3)


@_mutation("bytes anywhere")
def _bytes_anywhere(data: bytes, other: bytes, rng: Rng) -> bytes:
    return _some_bytes(data, rng, _byte(rng), 8)


@_mutation("cut anywhere")
def _cut(data: bytes, other: bytes, rng: Rng) -> bytes:
    return data[: rng.randrange(len(data))]


@_mutation("cut near the end")
def _cut_end(data: bytes, other: bytes, rng: Rng) -> bytes:
    return data[: -rng.randint(1, 20)]


@_mutation("cut, with an end marker")
def _cut_and_closed(data: bytes, other: bytes, rng: Rng) -> bytes:
    return data[: rng.randrange(2, len(data))] + EOI


@_mutation("cut in or between segments")
def _cut_segment(data: bytes, other: bytes, rng: Rng) -> bytes:
    file = pieces(data)
    kept = joined(file[: rng.randint(0, len(file))])[: -len(EOI)]
    return kept + rng.choice((b"", b"\xff", EOI, b"\xff\xda", data[len(kept) :][: rng.randint(1, 12)]))


@_mutation("bytes left out")
def _bytes_left_out(data: bytes, other: bytes, rng: Rng) -> bytes:
    at = rng.randrange(2, len(data))
    return data[:at] + data[at + rng.choice((1, 1, 2, 3, 17, 200)) :]


@_mutation("bytes put in")
def _bytes_put_in(data: bytes, other: bytes, rng: Rng) -> bytes:
    at = rng.randrange(2, len(data))
    return data[:at] + rng.choice((rng.randbytes(rng.randint(1, 9)), b"\xff", b"\xff\xff\xff", bytes(4))) + data[at:]


@_mutation("a stretch overwritten")
def _overwritten(data: bytes, other: bytes, rng: Rng) -> bytes:
    at, size = rng.randrange(2, len(data)), rng.choice((8, 64, 512))
    filling = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size), other[at : at + size]))
    return data[:at] + filling + data[at + size :]


@_mutation("the files' ends exchanged")
def _ends_exchanged(data: bytes, other: bytes, rng: Rng) -> bytes:
    return data[: rng.randrange(2, len(data))] + other[rng.randrange(2, len(other)) :]


@_mutation("concatenated")
def _concatenated(data: bytes, other: bytes, rng: Rng) -> bytes:
    return data + rng.choice((data, other, other[: len(other) // 2], other[2:]))


@_mutation("concatenated, the first without its end")
def _concatenated_open(data: bytes, other: bytes, rng: Rng) -> bytes:
    return data[: rng.choice((-2, -1, -30, len(data) // 2))] + rng.choice((data, other, other[2:]))


@_mutation("garbage behind the file")
def _garbage_behind(data: bytes, other: bytes, rng: Rng) -> bytes:
    return data + rng.choice((rng.randbytes(rng.randint(1, 99)), EOI, SOI, b"\xff" * 9, bytes(70_000)))


@_mutation("garbage in place of the end")
def _garbage_at_end(data: bytes, other: bytes, rng: Rng) -> bytes:
    return data[:-2] + rng.choice((rng.randbytes(rng.randint(1, 99)), b"\xff" * 9, bytes(9), b"\xff\xd8"))


@_mutation("garbage before the file")
def _garbage_before(data: bytes, other: bytes, rng: Rng) -> bytes:
    return rng.choice((rng.randbytes(rng.randint(1, 9)), SOI, b"\xff", bytes(1), data[: rng.randint(1, 40)])) + data


@_mutation("markers in the scan")
def _markers_in_scan(data: bytes, other: bytes, rng: Rng) -> bytes:
    file = pieces(data)
    place = _somewhere(file, rng, 0)
    payload = file[place].payload
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(payload) + 1)
        marker = rng.choice((*range(0xD0, 0xDA), 0xDA, 0xDB, 0xDC, 0xDD, 0xC0, 0xC4, 0xE0, 0xFE, 0xFF, 0x01, 0x42))
        tail = rng.choice((b"", b"", b"\x00\x02", b"\x00\x04\x00\x30", b"\xff\xff"))
        payload = payload[:at] + bytes((0xFF, marker)) + tail + payload[at + rng.choice((0, 2)) :]
    return joined([*file[:place], Piece(0, payload), *file[place + 1 :]])


@_mutation("segments in the scan")
def _segments_in_scan(data: bytes, other: bytes, rng: Rng) -> bytes:
    file = pieces(data)
    place = _somewhere(file, rng, 0)
    payload, at = file[place].payload, rng.randrange(len(file[place].payload) + 1)
    inside = bytes(rng.choice([piece for piece in (*file, *pieces(other)) if piece.marker]))
    return joined([*file[:place], Piece(0, payload[:at] + inside + payload[at:]), *file[place + 1 :]])


@_mutation("restart markers changed")
def _restarts(data: bytes, other: bytes, rng: Rng) -> bytes:
    at = [i for i in range(len(data) - 1) if data[i] == 0xFF and 0xD0 <= data[i + 1] <= 0xD7]
    if not at:
        return _markers_in_scan(data, other, rng)
    where, new = rng.choice(at), 0xD0 + rng.randrange(8)
    return rng.choice(
        (
            data[:where] + data[where + 2 :],
            data[:where] + data[where : where + 2] + data[where:],
            data[: where + 1] + bytes((new,)) + data[where + 2 :],
            data[:where] + data[min(where + rng.randint(1, 60), len(data)) :],
        )
    )


@_on_pieces("a segment left out")
def _left_out(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    place = rng.randrange(len(file))
    return file[:place] + file[place + 1 :]


@_on_pieces("a segment doubled")
def _doubled(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    place = rng.randrange(len(file))
    return [*file[:place], file[place], *file[place:]]


@_on_pieces("a segment moved")
def _moved(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    piece = file.pop(rng.randrange(len(file)))
    file.insert(rng.randint(0, len(file)), piece)
    return file


@_on_pieces("a segment put in")
def _put_in(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    file.insert(rng.randint(0, len(file)), rng.choice(other))
    return file


@_on_pieces("a segment of another file")
def _exchanged(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    piece = rng.choice(other)
    file[_somewhere(file, rng, piece.marker)] = piece
    return file


@_on_pieces("segments shortened or lengthened")
def _resized(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(file))
        piece = file[place]
        size = rng.choice((0, 1, rng.randint(0, len(piece.payload)), max(len(piece.payload) - 1, 0)))
        longer = piece.payload + rng.randbytes(rng.randint(1, 9))
        file[place] = piece._replace(payload=rng.choice((piece.payload[:size], longer))[:60_000])
    return file


@_mutation("a wrong segment length")
def _wrong_length(data: bytes, other: bytes, rng: Rng) -> bytes:
    file = pieces(data)
    place = rng.choice([place for place, piece in enumerate(file) if piece.marker])
    at, size = len(joined(file[:place])) - len(EOI) + 2, len(file[place].payload) + 2
    wrong = rng.choice((0, 1, 2, 3, size - 1, size + 1, size + rng.randrange(2000), 0xFFFF))
    return data[:at] + max(wrong, 0).to_bytes(2, "big") + data[at + 2 :]


_MAGIC: tuple[tuple[int, bytes], ...] = (
    (0xE0, b"JFIF\0\1\1"),
    (0xE0, b"JFXX\0"),
    (0xE1, b"Exif\0\0"),
    (0xE1, b"Exif\0\0II*\0\x08\0\0\0\1\0"),
    (0xE1, b"http://ns.adobe.com/xap/1.0/\0"),
    (0xE2, b"ICC_PROFILE\0"),
    (0xE2, b"ICC_PROFILE\0\1\1"),
    (0xE2, b"ICC_PROFILE\0\1\2"),
    (0xE2, b"FPXR\0"),
    (0xE2, b"MPF\0"),
    (0xE2, b"MPF\0II*\0\x08\0\0\0"),
    (0xED, b"Photoshop 3.0\x00"),
    (0xED, b"Photoshop 3.0\x008BIM"),
    (0xED, b"Photoshop 3.0\x008BIM\x04\x04"),
    (0xED, b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\0\0\x028BIM8BIM"),
    (0xED, b"Photoshop 3.0\x008BIM\x03\xed\0\0\0\0\0\x10"),
    (0xEE, b"Adobe\0\x64\0\0\0\0\0"),
    (0xEE, b"Adobe\0\x64\0\0\0\0\1"),
    (0xFE, b"comment"),
    (0xDC, b"\0\x30"),
    (0xDD, b"\0\4"),
    (0xDB, b"\0"),
    (0xC4, b"\0"),
    (0xDE, b""),
    (0xF0, b"\xff\xc0\0\x11\x08\0\x10\0\x10\3\1\x11\0\2\x11\0\3\x11\0"),
    (0xDF, b"\x11"),
    (0xF0, b""),
    (0xCC, b"\0\0"),
)


@_on_pieces("a segment made up")
def _made_up(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    marker, payload = rng.choice(_MAGIC)
    payload = payload[: rng.randint(0, len(payload))] if rng.random() < 0.3 else payload
    piece = Piece(marker, payload + rng.randbytes(rng.choice((0, 0, 1, 2, 5, 14, 80))))
    file.insert(rng.randrange(1 + _somewhere(file, rng, *SOF)), piece)
    return file


@_on_pieces("another size")
def _another_size(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    place = _somewhere(file, rng, *SOF)
    payload = bytearray(file[place].payload)
    for at in rng.choice(((1,), (3,), (1, 3))):
        old = int.from_bytes(payload[at : at + 2], "big")
        new = rng.choice((0, 1, old - 1, old + 1, old + 8, 2 * old, 1000, 1400, 65_500, 65_535, rng.randrange(1 << 16)))
        payload[at : at + 2] = (new % (1 << 16)).to_bytes(2, "big")
    file[place] = file[place]._replace(payload=bytes(payload))
    return file


@_on_pieces("other sampling factors")
def _sampling(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    place = _somewhere(file, rng, *SOF)
    payload = bytearray(file[place].payload)
    for at in range(7, len(payload), 3):
        if rng.random() < 0.6:
            payload[at] = rng.choice((0x11, 0x12, 0x21, 0x22, 0x41, 0x14, 0x44, 0x31, 0x13, 0x33, 0x23, 0x01, 0x10))
    file[place] = file[place]._replace(payload=bytes(payload))
    return file


@_on_pieces("another kind of frame")
def _frame(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    place = _somewhere(file, rng, *SOF)
    file[place] = file[place]._replace(marker=rng.choice((*range(0xC0, 0xD0),)))
    return file


@_on_pieces("another restart interval")
def _interval(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    interval = Piece(0xDD, rng.choice((0, 1, 2, 3, 5, 64, 65_535)).to_bytes(2, "big"))
    file.insert(_somewhere(file, rng, 0xDA), interval)
    return file


@_on_pieces("scans in another order")
def _scans(file: File, other: File, rng: Rng) -> Sequence[Piece]:
    starts = [place for place, piece in enumerate(file) if piece.marker == 0xDA]
    first, *rest = starts
    scans = [file[start:end] for start, end in zip(starts, [*rest, len(file)], strict=True)]
    rng.shuffle(scans)
    return file[:first] + [piece for scan in scans[: rng.randint(1, len(scans))] for piece in scan]


class Mutant(NamedTuple):
    number: int
    kind: str
    data: bytes


def mutants(numbers: range, seed: int, photos: Sequence[bytes] = ()) -> Iterator[Mutant]:
    """The mutants with these numbers; every kind in turn, every fourth one mutated once more."""
    files = (*originals(), *photos)
    for number in numbers:
        rng = Rng(f"{seed} {number}")
        kind = tuple(MUTATIONS)[number % len(MUTATIONS)]
        data = MUTATIONS[kind](rng.choice(files), rng.choice(files), rng)
        if rng.random() < 0.25:
            data = rng.choice((_bits_anywhere, _bytes_left_out, _garbage_behind))(data + b"\0\0\0", data, rng)
            kind += ", twice"
        yield Mutant(number, kind, data)
