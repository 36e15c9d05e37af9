"""Regions that are decoded in bands of rows, which a sink takes: the same pixels as in one piece, all in order."""

import ctypes
import random
from itertools import count
from typing import Any

import numpy as np
import pytest

from accel.codec import jpeg
from accel.codec.engines import Box
from accel.codec.jpeg import decode_fields as df
from accel.codec.jpeg import header_fields as hd
from bench.fuzz.coder import SAMPLINGS, UNEQUAL, Coder, random_blocks
from bench.fuzz.files import encode, picture, pillow
from tests.support import inside
from tests.support.indexed import boxes, intact, noise, padded, points_of, poison
from tests.support.jpeg import damaged, shape
from tests.support.stream_index import mcu_columns, placing, sealed, unpacked, with_points

POISON = 0x5A


class Sink:
    """A sink that takes bands as compiled code does, and refuses from the ``refused``-th one on."""

    def __init__(self, out: np.ndarray, refused: int = 1 << 30) -> None:
        self.out, self.refused = out, refused
        self.taken: list[tuple[int, np.ndarray]] = []
        self.done = 0
        self.own = np.arange(3, dtype=np.int64)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)(self._take)
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        self.words = np.array([address, id(np.ndarray), 0, 0, id(self.own)], np.int64)

    def _take(self, kind: int, begin: int, count: int, own: int) -> int:
        assert (kind, own) == (id(np.ndarray), id(self.own))
        self.taken.append((begin, self.out[:count].copy()))
        self.out[:] = POISON
        return int(len(self.taken) >= self.refused)

    def last(self) -> list[tuple[int, np.ndarray]]:
        """The bands since the region's first rows came for the last time: (first row, pixels) of each."""
        first = max(place for place, (begin, _) in enumerate(self.taken) if begin == 0)
        return self.taken[first:]


def decode(
    data: bytes, box: Box, rows: int, index: jpeg.Index | None = None, refused: int = 1 << 30
) -> tuple[Sink, np.ndarray | None]:
    """The sink, and the region put together from its bands; None if the decoder refuses the file."""
    poison()
    own, source = inside.scratch(), np.frombuffer(data, np.uint8)
    top, left, height, width = box
    size = jpeg.PREPARE(source, own.header, own.layout, False, *box)
    sink = Sink(np.full((rows, width, max(int(own.header[hd.COMPONENTS]), 1)), POISON, np.uint8), refused)
    if size == 0:
        return sink, None
    words = np.empty(0, np.uint16) if index is None else index.of(int(own.header[hd.INDEX_BYTES]))
    memory = own.decoding(int(own.header[hd.INTERVALS]), len(data), size)
    sink.done = jpeg.DECODE(source, own.header, own.layout, top, left, *memory, words, height, sink.words, sink.out)
    if not sink.done:
        return sink, None
    assert [begin for begin, _ in sink.last()] == [*range(0, height, rows)]
    assert [len(band) for _, band in sink.last()] == [min(rows, height - begin) for begin in range(0, height, rows)]
    return sink, np.concatenate([band for _, band in sink.last()])


@pytest.mark.parametrize("rows", [1, 7, 16, 48])
def test_every_sampling(rows: int) -> None:
    for number, factors in enumerate([*SAMPLINGS, *UNEQUAL, [(1, 1)]]):
        components = [(i, *each) for i, each in enumerate(factors, 1)]
        height = (95, 96, 97, 16, 33)[number % 5]
        data = Coder().file((height, 43), components, random_blocks(60))
        expected = pillow(data).reshape(height, 43, -1)
        for top in (0, 5, 15):
            for bottom in {height, height - 1, min(top + rows, height), min(top + 2 * rows + 1, height)}:
                if bottom > top:
                    sink, found = decode(data, (top, 3, bottom - top, 37), rows)
                    assert found is not None
                    assert len(sink.taken) == len(sink.last())
                    assert np.array_equal(found, expected[top:bottom, 3:40]), (factors, top, bottom)


def test_any_boxes_of_any_files(thorough: bool) -> None:
    used = 0
    for seed in range(2000 if thorough else 100):
        data, rng, index = intact(seed), random.Random(seed), jpeg.Index()
        for box in boxes(data, rng, 4):
            expected = jpeg.decode(data, box)
            for given in (None, index):
                sink, found = decode(data, box, rng.choice([1, 2, 8, 16, 31, 64]), given)
                assert (found is None) == (expected is None)
                assert found is None or np.array_equal(found, expected)
                used += sink.done & df.USED != 0
            if found is None:
                index.begin()
                index.clear()
    assert used > 50


@pytest.mark.parametrize("grey", [False, True])
def test_an_index_that_turns_out_wrong(grey: bool) -> None:
    """Its checksum is right; some rows are handed over before the walk finds that a point is wrong."""
    data = padded(encode(picture("noise", 150, 250, 1 if grey else 3), quality=70), 9000)
    words = points_of(data).view(np.uint16).copy()
    points = unpacked(data, words)
    changed = next(number for number in count() if placing(data).mcu(number) >= 4 * mcu_columns(data))
    bit, *dc = points[changed]  # type: ignore[misc]
    points[changed] = (bit + 1, *dc)
    index = jpeg.Index()
    index.room(2 * len(words)).view(np.uint16)[:] = sealed(data, with_points(data, words, points))
    sink, found = decode(data, (0, 0, 150, 250), 16, index)
    assert np.array_equal(found, jpeg.decode(data, (0, 0, 150, 250)))
    assert len(sink.taken) > len(sink.last()) == 10  # it began anew


def test_damaged_files(thorough: bool) -> None:
    rng, given_up = np.random.default_rng(3), 0
    for seed in range(1000 if thorough else 100):
        data = damaged(noise(seed % 5, restart_marker_blocks=seed % 3 * 4), rng, header=seed % 4 == 0)
        try:
            height, width, _ = shape(data)
        except Exception:
            continue
        if height * width > 1 << 16:
            continue
        for box in boxes(data, random.Random(seed), 2):
            expected = jpeg.decode(data, box)
            sink, found = decode(data, box, 8)
            assert (found is None) == (expected is None)
            assert found is None or np.array_equal(found, expected)
            given_up += found is None and len(sink.taken) > 0
    assert given_up > 5


def test_a_sink_that_refuses() -> None:
    sink, found = decode(noise(), (0, 0, 120, 200), 16, refused=3)
    assert found is None
    assert [begin for begin, _ in sink.taken] == [0, 16, 32]


def test_without_a_sink_all_is_in_one_piece() -> None:
    data = noise()
    found: Any = jpeg.decode(data, (3, 4, 100, 90))
    assert np.array_equal(found, pillow(data)[3:103, 4:94])
