"""Decodes that begin where earlier ones found a file's rows to begin: the same pixels, whatever the index says."""

import random

import numpy as np
import pytest

from accel.codec import decode as codec
from accel.codec import jpeg
from accel.codec.header import Raw, claim
from accel.codec.jpeg import index_fields as ix
from bench.fuzz.files import encode, picture
from tests.support.indexed import Keeper, boxes, intact, noise, points_of, rows_of
from tests.support.stream_index import digest, index_size, sealed


def test_any_boxes_of_any_files(thorough: bool) -> None:
    used = grown = 0
    files = 3000 if thorough else 150
    for seed in range(files):
        data, rng, keeper = intact(seed), random.Random(seed), Keeper()
        known = 0
        for box in boxes(data, rng, 8):
            if keeper.decode(data, box) is None:  # a block that libjpeg's arithmetic may overflow at
                continue
            assert keeper.index.used == (known > 0)
            assert not keeper.index.dropped
            now = 0 if keeper.kept is None else rows_of(keeper.kept)
            assert keeper.index.grown == (now > known)
            known, used, grown = now, used + keeper.index.used, grown + keeper.index.grown
        assert (known > 0) == (keeper.kept is not None and jpeg.known_points(data, keeper.kept) > 0)
    assert used > 2 * files
    assert grown > files / 2


def test_it_knows_what_was_walked() -> None:
    data, keeper = noise(), Keeper()
    rows = []
    for box in [(0, 50, 10, 10), (40, 3, 20, 150), (20, 3, 9, 9), (0, 0, 120, 200), (119, 199, 1, 1)]:
        keeper.decode(data, box)
        assert keeper.kept is not None
        rows.append((rows_of(keeper.kept), *keeper.said))
    assert rows == [
        (1, False, True, False),
        (4, True, True, False),
        (4, True, False, False),
        (8, True, True, False),
        (8, True, False, False),
    ]
    assert keeper.kept is not None
    assert np.array_equal(keeper.kept, points_of(data))


@pytest.mark.parametrize("restart", [0, 3])
def test_rows_above_are_not_walked(restart: int) -> None:
    """They are damaged here, and the index is made to fit."""
    data = noise(restart_marker_blocks=restart)
    kept = points_of(data).view(np.uint16).copy()
    scan = data.rindex(b"\xff\xda") + 14
    broken = bytearray(data)
    broken[scan + 20 : scan + 26] = bytes(6)
    assert jpeg.decode(bytes(broken), (100, 100, 20, 50)) is None or restart
    index = jpeg.Index()
    index.room(2 * len(kept)).view(np.uint16)[:] = sealed(bytes(broken), kept)
    found = jpeg.decode(bytes(broken), (100, 100, 20, 50), index=index)
    assert (index.used, index.dropped) == (True, False)
    assert np.array_equal(found, jpeg.decode(data, (100, 100, 20, 50)))


def test_sizes(thorough: bool) -> None:
    for seed in range(400 if thorough else 60):
        data = intact(seed)
        size = index_size(data)
        assert size % 8 == 0
        assert size == 0 or size + ix.AROUND <= len(data) // ix.SHARE
        index = jpeg.Index()
        if jpeg.decode(data, index=index) is not None:
            assert len(index.bytes) == size
            assert index.grown == (size > 0)
            assert not size or jpeg.known_points(data, index.bytes) > 1


def test_small_files_have_none() -> None:
    data = encode(picture("smooth", 32, 32))
    assert index_size(data) == 0
    keeper = Keeper()
    assert keeper.decode(data, (3, 3, 9, 9)) is not None
    assert keeper.said == (False, False, False)
    for other in (encode(picture("noise", 200, 200), progressive=True), b"", b"\xff\xd8\xff\xd9", data[:100]):
        assert index_size(other) == 0
        assert jpeg.known_points(other, points_of(noise())) == 0


def test_digests() -> None:
    rng = np.random.default_rng(0)
    seen = set()
    count = 0
    for size in (0, 1, 7, 8, 9, 1023, 1024, 1025, 2047, 2048, 2049, 5000):
        data = rng.bytes(size)
        seen.add(digest(data))
        count += 1
        for at in {0, size // 2, *range(max(size - 40, 0), size), *rng.integers(0, size + 1, 200)} - {size}:
            changed = bytearray(data)
            changed[at] ^= 1 << int(rng.integers(8))
            seen.add(digest(bytes(changed)))
            count += 1
        for block in range(0, size - 1024, 512):  # what is moved is seen as well
            changed = bytearray(data)
            changed[block : block + 512], changed[block + 512 : block + 1024] = (
                data[block + 512 : block + 1024],
                data[block : block + 512],
            )
            seen.add(digest(bytes(changed)))
            count += 1
        seen.add(digest(bytes(size)))
        count += size > 0
    assert len(seen) == count
    assert digest(memoryview(bytearray(b"abc" * 999))) == digest(b"abc" * 999)


def test_room() -> None:
    index = jpeg.Index()
    assert [len(index.room(size)) for size in (0, 8, 9, -8, 1 << 14, (1 << 22) + 8)] == [0, 8, 0, 0, 1 << 14, 0]


def test_the_engine_takes_it() -> None:
    data = noise()
    header = claim(data)
    assert header is not None
    index = jpeg.Index()
    for used in (False, True):
        found = codec.decode(data, header, (20, 20, 50, 50), 3, index=index)
        assert np.array_equal(found, jpeg.decode(data, (20, 20, 50, 50)))
        assert (index.used, index.grown) == (used, not used)
    codec.decode(data, header, (20, 20, 50, 50), 3, "pillow", index=index)
    assert not index.used
    codec.decode(bytes(300), Raw(10, 10, "RGB"), (2, 2, 5, 5), 3, index=index)
    assert not index.used
