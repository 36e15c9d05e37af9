"""Pictures kept as planes."""

import random
from typing import Any
from unittest import mock

import numpy as np

from accel.codec import jpeg
from accel.codec.jpeg import layout_fields as lo
from accel.codec.jpeg import planes
from bench.fuzz.files import encode
from tests.support import inside


def cut(found: planes.Encoded) -> list[np.ndarray]:
    """Its parts, copied."""
    return np.split(found.content.copy(), found.ends[:-1])


def grey(samples: np.ndarray) -> tuple[bytes, list[np.ndarray]]:
    """Any samples, packed as if a file had been decoded to them."""
    height, width = samples.shape
    data = encode(np.zeros((height, width), np.uint8))

    def decode_whole(*arguments: Any) -> Any:
        _, memory = found = real(*arguments)
        origin, stride = inside.scratch().layout[0, [lo.ORIGIN, lo.STRIDE]].tolist()
        for y, row in enumerate(samples):
            memory[origin + y * stride : origin + y * stride + width] = row
        return found

    real: Any = jpeg.decode_whole
    with mock.patch.object(jpeg, "decode_whole", decode_whole):
        found = planes.encode(data)
    assert found is not None
    return found.meta, cut(found)


def some_samples(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Blocks that differ in how far apart their samples are, and their rows."""
    shape = (height // 8, 8, width // 8, 8)
    each = (shape[0], 1, shape[2], 1)
    steps = rng.integers(-(2 ** rng.integers(0, 8, each)), 2 ** rng.integers(0, 8, each), shape)
    level = rng.random(shape) * 2.0 ** rng.integers(0, 9, each)
    steep = level[:, :1] + np.cumsum(steps, 1)
    return (
        (np.where(rng.integers(0, 2, each), steep, level + rng.integers(0, 256, each)).astype(np.int64) % 256)
        .astype(np.uint8)
        .reshape(height, width)
    )


def spoilt(rng: random.Random, meta: bytes, part: np.ndarray) -> tuple[bytes, np.ndarray]:
    """One of them, or both, with something wrong."""
    words, part = np.frombuffer(meta, np.uint16).copy(), part.copy()
    what = rng.randrange(6)
    if what == 0:
        words[rng.randrange(len(words))] = rng.choice([0, 1, 2, 3, 4, 5, 8, 255, 4096, 65535, rng.randrange(65536)])
    elif what == 1:
        part = part[: rng.randrange(min(len(part), rng.choice([9, 99, 1 << 20])))]
        if len(part) > 3 and rng.randrange(2):
            part[:4].view(np.uint32)[0] = len(part)
    elif what == 2:  # a size, a place of a row, a code
        at = min(4 * rng.randrange(20), len(part) - 4)
        part[at : at + 4] = np.frombuffer(
            rng.choice([2**32 - 1, 2**31, len(part) - 3, 0, 9]).to_bytes(4, "little"), np.uint8
        )
    elif what == 3:
        part[:] = np.frombuffer(rng.randbytes(len(part)), np.uint8)
    else:
        for _ in range(1 << rng.randrange(8)):
            part[rng.randrange(len(part))] = rng.choice([255, 128, 0, rng.randrange(256)])
    return words.tobytes(), part
