"""Helpers of the JPEG decoders' tests beside bench.fuzz's files: damage, and hypothesis' files."""

import random
import warnings
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from accel.backends.cuda.jpeg import Decoding, Request, index
from accel.codec.header import claim
from accel.codec.jpeg import header_fields as hd
from bench.fuzz.coder import Coder, Scan, random_blocks
from bench.fuzz.files import KINDS, encode, picture, pillow
from tests.support import inside

LARGEST = 1 << 18  # pixels: a damaged header may promise many


def damaged(data: bytes, rng: np.random.Generator, *, header: bool) -> bytes:
    """The file with one small damage, in its scan or before it."""
    changed = bytearray(data)
    scan = data.rindex(b"\xff\xda") + 14
    start, stop = (2, scan) if header else (scan, len(data) - 2)
    at = int(rng.integers(start, stop))
    match rng.integers(4):
        case 0:
            changed[at] ^= 1 << int(rng.integers(8))
        case 1:
            changed[at] = int(rng.integers(256))
        case 2:
            del changed[at : at + int(rng.integers(1, 5))]
        case _:
            changed[at:at] = rng.bytes(int(rng.integers(1, 5)))
    return bytes(changed)


def with_room(data: bytes, size: int = 1 << 14) -> bytes:
    """The file with a comment, which makes it so large that it may have a stream index with a point for each MCU."""
    return data[:2] + b"\xff\xfe" + size.to_bytes(2, "big") + bytes(size - 2) + data[2:]


def check_on_device(files: dict[int, bytes], largest: int = LARGEST) -> tuple[int, list[str]]:
    """How many of these files the device's decoder takes, all or a part, and what of it is not Pillow's.

    ``largest``: pixels of a file that is tried.
    """
    decoder = inside.engine().jpeg
    wanted: dict[int, Request] = {}
    for number, data in files.items():
        rng, header = random.Random(number), claim(data)
        if (
            header is not None
            and not header.progressive
            and header.ordinary
            and header.width * header.height <= largest
        ):
            top, left = rng.randrange(header.height), rng.randrange(header.width)
            box = (top, left, rng.randint(1, header.height - top), rng.randint(1, header.width - left))
            whole = (0, 0, header.height, header.width)
            wanted[number] = Request(data, rng.choice((whole, box, box)), 1 if header.mode == "L" else 3)
    first = [each._replace(known=np.zeros(0, np.uint8)) for each in wanted.values()]
    decoding = decoder.decode(first)
    taken, wrong = _compare(wanted, decoding)
    indexed = {number: each for place, (number, each) in enumerate(wanted.items()) if place in decoding.made.each()}
    found = [
        each._replace(known=index) for each, index in zip(indexed.values(), decoding.made.each().values(), strict=True)
    ]
    again = decoder.decode(found)
    assert again.made.each() == {}
    more, others = _compare(indexed, again)
    with mock.patch.object(index, "read", partial(led_astray, index.read)):
        decoder.decode(found).flagged()  # pixels that somebody might take for right are not the matter here
    return taken + more, wrong + [f"{each}, by its index" for each in others]


def led_astray(read: Any, files: Any, starts: Any, sizes: Any, good: Any, headers: Any, *rest: Any) -> index.Known:
    """What is known, with segments that begin anywhere in the scan."""
    known, rng = read(files, starts, sizes, good, headers, *rest), np.random.default_rng(len(starts))
    for (first, count), size, scan in zip(known.table[:, :2], sizes, headers[:, hd.SCAN], strict=True):
        points = known.segments["from"][first : first + count]
        points["byte"], points["bit"] = rng.integers(scan, size, count), rng.integers(0, 8, count)
    return known  # type: ignore[no-any-return]


def _compare(wanted: dict[int, Request], decoding: Decoding) -> tuple[int, list[str]]:
    flagged, taken, wrong = set(decoding.flagged()), 0, list[str]()
    for place, (number, (data, box, channels, _)) in enumerate(wanted.items()):
        if decoding.addresses[place] is None or place in flagged:
            continue
        taken += 1
        top, left, height, width = box
        pixels = decoding.read(place, height * width * channels).reshape(height, width, channels)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = pillow(bytes(data))[top : top + height, left : left + width]
            except Exception as error:
                wrong.append(f"file {number}: {error!r} is Pillow's, not pixels")
                continue
        if not np.array_equal(expected, pixels):
            wrong.append(f"file {number}: other pixels than Pillow's")
    return taken, wrong


@st.composite
def files_and_boxes(draw: st.DrawFn, largest: int) -> tuple[bytes, tuple[int, int, int, int]]:
    """A file of at most ``largest`` rows and columns, of any of Pillow's encoder settings, and a box inside it."""
    height, width = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    channels = draw(st.sampled_from([1, 3]))
    options: dict[str, Any] = {"quality": draw(st.integers(1, 100)), "optimize": draw(st.booleans())}
    if channels == 3:
        options["subsampling"] = draw(st.integers(0, 2))
    if restart := draw(st.integers(0, 5)):
        options["restart_marker_blocks"] = restart
    pixels = picture(draw(st.sampled_from(KINDS)), height, width, channels, draw(st.integers(0, 99)))
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    box = (top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left)))
    return encode(pixels, **options), box


def shape(data: bytes) -> tuple[int, int, int]:
    with Image.open(BytesIO(data)) as image:
        return image.height, image.width, len(image.getbands())


class Liar(Coder):
    """Files with something wrong in the third block of the stream."""

    def __init__(self, lie: str) -> None:
        super().__init__()
        self._lie, self._count = lie, 0

    def _block(self, block: np.ndarray, previous: int, scan: Scan) -> Iterator[str]:
        self._count += 1
        if self._count != 3:
            yield from super()._block(block, previous, scan)
        elif self._lie == "no code":
            yield from ("0" * 4, "1" * 16, "0" * 15)  # as many bits as a symbol may take: all else is right
        elif self._lie == "past the end":
            yield from ("0" * 4, (self.ac[0xF1] + "1") * 4)
        elif self._lie == "one more":
            yield from super()._block(block, previous, scan)
            yield from super()._block(block, int(block[0]), scan)
        elif self._lie == "left over":
            yield from super()._block(block, previous, scan)
            yield "0" * 9


def lies() -> dict[str, tuple[bytes, int]]:
    """Files that the kernels must notice, and by which guard (``Reason`` of picture.h)."""
    grey, plain = [(1, 1, 1)], random_blocks(9)
    good = Coder().file((24, 24), grey, plain)
    huge = np.zeros((9, 64), int)
    huge[:, :4] = 1000
    intervals = encode(picture("smooth", 40, 40), restart_marker_blocks=2)
    marker, table = intervals.index(b"\xff\xd1"), good.index(b"\xff\xc4") + 5
    return {
        "no end": (good[:-2], 1),
        "fill bytes before the end": (good[:-2] + b"\xff\xff\xd9", 2),
        "another marker": (good[:-2] + b"\xff\xfe\0\2\xff\xd9", 2),
        "wrong restart marker": (intervals[:marker] + b"\xff\xd2" + intervals[marker + 2 :], 2),
        "restart marker missing": (intervals[:marker] + intervals[marker + 2 :], 2),
        "too many codes": (good[:table] + b"\3\0\0\x09" + good[table + 4 :], 3),
        "DC size of 16": (good[: table + 16] + b"\x10" + good[table + 17 :], 3),
        "no code": (Liar("no code").file((24, 24), grey, plain), 4),
        "past the end": (Liar("past the end").file((24, 24), grey, plain), 4),
        "one block more": (Liar("one more").file((24, 24), grey, plain), 5),
        "one block less": (Liar("one less").file((24, 24), grey, plain), 5),
        "left over": (Liar("left over").file((24, 24), grey, plain), 5),
        "left over at the end": (good[:-2] + b"\x55" + good[-2:], 5),
        "too large for 16 bits": (Coder().file((24, 24), grey, huge, quant=9), 7),
        "quantiser of more than 13 bits": (Coder().file((24, 24), grey, plain, quant=9000, wide=True), 7),
    }


def drifting() -> bytes:
    """DC values that leave 16 bits, and come back, in the upper rows of a picture of 16."""
    drift = np.zeros((40, 64), int)
    drift[:40, 0] = 2047 * np.concatenate([np.arange(20), np.arange(20, 0, -1)])
    return Coder().file((16, 320), [(1, 1, 1)], drift)
