"""Files that the device's decoder reads by their indexes."""

import numpy as np

from accel.backends.cuda.jpeg import Decoding, Request
from accel.codec import jpeg
from bench.fuzz.coder import SAMPLINGS, Coder, random_blocks
from bench.fuzz.files import encode, picture
from tests.support import inside
from tests.support.cuda import DEVICE
from tests.support.jpeg import shape

Box = tuple[int, int, int, int]
NOTHING = np.zeros(0, np.uint8)
FILES = {
    "444": encode(picture("smooth", 161, 183), subsampling=0, quality=95),
    "422": encode(picture("smooth", 150, 147), subsampling=1, optimize=True),
    "420": encode(picture("noise", 175, 166), subsampling=2, quality=97),
    "grey": encode(picture("smooth", 190, 181, 1), quality=99),
    "intervals": encode(picture("smooth", 175, 190), subsampling=2, quality=90, restart_marker_blocks=3),
    "rows": encode(picture("noise", 75, 190), subsampling=0, quality=90, restart_marker_rows=2),
    "mcus": encode(picture("binary", 140, 144), subsampling=0, quality=60, restart_marker_blocks=1),
    "rgb": encode(picture("noise", 70, 90), keep_rgb=True, quality=90),
    "tiny": encode(picture("noise", 5, 3), quality=90),
    "narrow": encode(picture("noise", 300, 4), subsampling=2, quality=90),
    "flat": encode(picture("noise", 9, 400), subsampling=2, quality=90),
    "odd": Coder().file((33, 71), [(1, 4, 1), (2, 2, 1), (3, 4, 1)], random_blocks(97)),
    "long codes": Coder((2, 3, 4, *(16,) * 159)).file((40, 56), [(1, 1, 2), (2, 1, 1), (3, 1, 1)], random_blocks(35)),
    **{
        str(each): Coder().file((45, 59), [(1 + c, *f) for c, f in enumerate(each)], random_blocks(50))
        for each in SAMPLINGS
    },
}


def boxes_of(height: int, width: int, seed: int) -> list[Box]:
    rng = np.random.default_rng(seed)
    tops, lefts = rng.integers(0, height, 5), rng.integers(0, width, 5)
    some = [
        (int(t), int(x), int(rng.integers(1, height - t + 1)), int(rng.integers(1, width - x + 1)))
        for t, x in zip(tops, lefts, strict=True)
    ]
    return [(0, 0, height, width), (height - 1, width - 1, 1, 1), (0, 0, 1, 1), (height // 2, 0, 1, width), *some]


def decoded(wanted: list[Request]) -> Decoding:
    engine = inside.engine(DEVICE)
    with engine.device.enter():
        return engine.jpeg.decode(wanted)


def by_host(data: bytes, box: Box | None = None) -> np.ndarray:
    known = jpeg.Index()
    known.clear()
    assert jpeg.decode(data, box, index=known) is not None
    return known.bytes.copy()


def whole(data: bytes, known: np.ndarray | None = NOTHING) -> Request:
    height, width, channels = shape(data)
    return Request(data, (0, 0, height, width), channels, known)
