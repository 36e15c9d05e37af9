"""Files with stream indexes: pictures, boxes, points, and what is left of them."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from accel.codec import jpeg
from accel.codec.engines import Box
from accel.codec.jpeg import index_fields as ix
from accel.codec.jpeg.scratch import block_order, idct_tables
from bench.fuzz.coder import Coder, random_blocks
from bench.fuzz.files import FACTORS, LENGTHS, encode, picture
from tests.support import inside
from tests.support.jpeg import shape

KEPT = ("order", "idct")  # of a thread's arrays: what does not change


def poison() -> None:
    """Fill the memory that a thread keeps between pictures."""
    scratch = inside.scratch()
    for name, array in vars(scratch).items():
        if name not in KEPT and isinstance(array, np.ndarray):
            array.reshape(-1).view(np.uint8)[:] = 0xA5
    assert np.array_equal(scratch.order, block_order())
    assert np.array_equal(scratch.idct, idct_tables())


def plainly(data: bytes, box: Box) -> Any:
    poison()
    return jpeg.decode(data, box)


class Keeper:
    """An index, and the bytes of it that are kept of one file; all decodes are compared with those without one."""

    def __init__(self, kept: np.ndarray | None = None) -> None:
        self.index = jpeg.Index()
        self.kept = kept

    def decode(self, data: bytes, box: Box) -> Any:
        expected = plainly(data, box)
        poison()
        self.index._words[:] = 0xA5A5
        self.index.clear()
        if self.kept is not None:
            self.index.room(len(self.kept))[:] = self.kept
        found = jpeg.decode(data, box, index=self.index)
        assert (found is None) == (expected is None)
        assert found is None or np.array_equal(found, expected)
        if found is None:
            assert self.said == (False, False, False)
            assert not len(self.index.bytes)
        if self.index.grown:
            self.kept = self.index.bytes.copy()
        return found

    @property
    def said(self) -> tuple[bool, bool, bool]:
        return self.index.used, self.index.grown, self.index.dropped


def padded(data: bytes, size: int) -> bytes:
    """The file with comments of about so many bytes: the larger it is, the more points its index may have."""
    comments = b"".join(b"\xff\xfe\x40\x02" + bytes(0x4000) for _ in range(size >> 14))
    rest = size & 0x3FFF
    return data[:2] + comments + b"\xff\xfe" + (rest + 2).to_bytes(2, "big") + bytes(rest) + data[2:]


def intact(seed: int) -> bytes:
    rng = random.Random(seed)
    height, width = rng.choice(
        [
            (rng.randint(1, 90), rng.randint(1, 90)),
            (rng.randint(60, 200), rng.randint(60, 200)),
            (rng.randint(200, 2000), rng.randint(1, 3)),
            (rng.randint(1, 40), rng.randint(600, 1200)),
        ]
    )
    if rng.random() < 0.4:
        factors = rng.choice([*FACTORS, [(1, 1)]])
        components = [(i, *each) for i, each in enumerate(factors, 1)]
        blocks = random_blocks(rng.randint(1, 90), seed, spread=rng.choice([1, 40, 200]), density=rng.random())
        restart = rng.choice([0, 0, rng.randint(1, 9), rng.randint(1, 200)])
        coder = Coder(rng.choice(LENGTHS))
        data = coder.file((min(height, 160), min(width, 320)), components, blocks, restart=restart)
    else:
        channels = rng.choice([1, 3, 3])
        options: dict[str, Any] = {"quality": rng.randint(1, 100), "optimize": max(height, width) < 600}
        if channels == 3:
            options["subsampling"] = rng.randint(0, 2)
        if rng.random() < 0.4:
            options["restart_marker_blocks"] = rng.choice([1, 2, rng.randint(1, 300)])
        kind = rng.choice(["smooth", "noise", "noise", "binary"])
        data = encode(picture(kind, height, width, channels, seed), **options)
    return padded(data, rng.choice([0, rng.randint(6000, 20000), 40000, 300000]))


def boxes(data: bytes, rng: random.Random, count: int) -> Iterator[Box]:
    height, width, _ = shape(data)
    for _ in range(count):
        top, left = rng.randrange(height), rng.randrange(width)
        rows, columns = rng.choice([(1, 1), (height, width), (40, 40), (height, 9), (9, width), (height, width)])
        rows, columns = min(rows, height - top), min(columns, width - left)
        yield top, left, rng.randint(1, rows), rng.randint(1, columns)


def points_of(data: bytes, seed: int = 0) -> np.ndarray:
    """The whole index of a file."""
    index = jpeg.Index()
    assert jpeg.decode(data, index=index) is not None
    assert index.grown
    return index.bytes.copy()


def noise(seed: int = 0, size: tuple[int, int] = (120, 200), **options: Any) -> bytes:
    return encode(picture("noise", *size, seed=seed), **{"quality": 80, "subsampling": 2, **options})


def rows_of(kept: np.ndarray) -> int:
    return int(kept.view(np.uint16)[ix.ROWS])
