"""Regions of JPEG files of every sampling, by the decoders that stand on libjpeg-turbo's; and the largest sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any

import numba
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import io
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel import testing
from accel.backends.dali.operator_chain import wide_enough
from accel.codec import jpeg
from accel.codec.header import claim
from accel.codec.jpeg.pixels import upsample_h2v1, upsample_h2v2, ycc_to_rgb
from accel.codec.jpeg.scratch import CHUNK
from accel.planning.plan import Decode
from accel.processes.switch import current
from accel.recipes.options import Options
from accel.recipes.recipe import Source
from accel.runtime import read
from accel.system.native.memory import pointer_to, u64
from bench.fuzz.coder import SAMPLINGS, UNEQUAL, Coder, ordinary_scans, random_blocks
from bench.fuzz.files import pillow
from tests.support import helpers
from tests.support.backends import Backend
from tests.support.helpers import assert_same, attempt


def made(factors: Any, size: tuple[int, int] = (21, 43), *, progressive: bool) -> bytes:
    components = [(i, *each) for i, each in enumerate(factors, 1)]
    script = ordinary_scans(len(components)) if progressive else ()
    return Coder().file(size, components, random_blocks(60), script)


def test_regions_are_wide_enough() -> None:
    assert wide_enough((3, 0, 7, 1), 40) == (3, 0, 7, 5)
    assert wide_enough((3, 38, 7, 2), 40) == (3, 35, 7, 5)
    assert wide_enough((3, 1, 7, 5), 40) == (3, 1, 7, 5)
    assert wide_enough((3, 1, 7, 1), 3) == (3, 0, 7, 3)


BACKENDS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "dali": {"device": "cpu"},
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_has_narrow_crops_right(backend: str) -> None:
    name, options = backend, BACKENDS[backend]
    if name == "dali":
        helpers.optional("nvidia.dali")
    for factors, (left, width) in itertools.product(UNEQUAL[:2], ((0, 2), (1, 1), (0, 3), (33, 2), (41, 2), (0, 43))):
        data = made(factors, progressive=True)

        def crop(data: bytes = data, left: int = left, width: int = width) -> torch.Tensor:
            return torch.stack([F.pil_to_tensor(F.crop(Image.open(BytesIO(data)), 0, left, 21, width))])

        expected = crop()
        with accel.image_backend(name, **options):
            assert_same(testing.computed(crop()).to("cpu"), expected)


@pytest.mark.parametrize("factors", [*SAMPLINGS, *UNEQUAL], ids=str)
def test_the_end_of_progressive_files_is_seen(factors: Any) -> None:
    """Whatever stands before it: a stuffed byte as well."""
    for width in range(29, 45):
        header = claim(made(factors, (29, width), progressive=True))
        assert header is not None
        assert header.complete
        assert header.ordinary


LONG = ((8, 65500), (65500, 16))
TOO_LONG = ((8, 65501), (65535, 16), (1, 65535))


@cache
def long(size: tuple[int, int]) -> bytes:
    return Coder().file(size, [(1, 1, 1)], random_blocks(9))


def ways(data: bytes) -> list[Callable[[], Any]]:
    stream = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return [
        lambda: Image.open(BytesIO(data)).size,
        lambda: np.asarray(Image.open(BytesIO(data)))[:4, :4],
        lambda: F.pil_to_tensor(F.crop(Image.open(BytesIO(data)), 0, 0, 1, 8)),
        lambda: F.pil_to_tensor(F.crop(Image.open(BytesIO(data)).convert("RGB"), 0, 0, 1, 8)),
        lambda: io.decode_jpeg(stream)[:, :4, :4],
        lambda: io.decode_image(stream, "RGB")[:, :4, :4],
    ]


@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
@pytest.mark.parametrize("size", [*LONG, *TOO_LONG], ids=str)
def test_sizes_end_where_libjpegs_do(size: tuple[int, int], backend: Backend) -> None:
    def attempts() -> list[Any]:
        found = [attempt(lambda: used(way())) for way in ways(long(size))]  # noqa: B023
        return [(each[0], str(each[1])) if isinstance(each, tuple) else each for each in found]

    def used(found: Any) -> Any:
        return found.to("cpu").clone() if isinstance(found, torch.Tensor) else found

    found = backend.equals_torchvision(attempts)
    assert sum(isinstance(each, tuple) and each[0] in (OSError, RuntimeError) for each in found) == 5 * (
        size in TOO_LONG
    )


def test_the_decoder_declines_them() -> None:
    for size in TOO_LONG:
        assert jpeg.decode(long(size)) is None
    for size in LONG:
        found = jpeg.decode(long(size), (0, 0, 1, 8))
        assert found is not None, size
        assert np.array_equal(found, pillow(long(size))[:1, :8])


def test_images_that_libjpeg_does_not_write_are_refused_at_once() -> None:
    """Tensors are left out: torchvision's own encoder ends the process (0.29)."""
    image = Image.new("L", (65501, 4))
    expected = attempt(lambda: v2.functional.jpeg(image, 50))
    assert expected[0] is OSError
    with accel.image_backend("cpu"):
        begun = v2.functional.hflip(image)
        assert [attempt(lambda start=start: v2.functional.jpeg(start, 50)) for start in (image, begun)] == [
            expected
        ] * 2


# -- tall pictures, whose planes are two rows of MCUs taken in turns -------------------------------------------------


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_tall_regions(subsampling: str) -> None:
    file = BytesIO()
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (30, 9, 3), np.uint8)
    Image.fromarray(pixels).resize((70, 240), Image.Resampling.BICUBIC).save(file, "JPEG", subsampling=subsampling)
    expected = np.asarray(Image.open(file))
    for top in range(0, 40, 3):
        for height in (16, 33, 64, 129, 200):
            box = top, 5 + top // 3, height, 41
            found = jpeg.decode(file.getvalue(), box, channels=3)
            assert np.array_equal(found, expected[top : top + height, box[1] : box[1] + 41])


# -- memory of large regions, another one while somebody looks -------------------------------------------------------


BOXES = ((0, 0, 1000, 1100), (30, 11, 900, 800), (5, 0, 1000, 1100))


def region(data: bytes, box: tuple[int, int, int, int]) -> np.ndarray:
    source = Source(data, claim(data), "a file", current())
    return read.pixels(Decode(source, 3, box, ()), 1, Options())


def expected(data: bytes, box: tuple[int, int, int, int]) -> np.ndarray:
    top, left, height, width = box
    return np.asarray(Image.open(BytesIO(data)))[top : top + height, left : left + width]


@pytest.mark.parametrize("progressive", [False, True])
def test_regions_that_are_looked_at_stay(progressive: bool) -> None:
    files = [helpers.jpeg(1100, 1010, seed=seed, progressive=progressive) for seed in range(3)]
    held = [region(data, box) for data, box in zip(files, BOXES, strict=True)]
    for pixels, data, box in zip(held, files, BOXES, strict=True):
        assert pixels.nbytes > 1 << 20
        assert np.array_equal(pixels, expected(data, box))


def test_memory_that_nobody_looks_at_is_used_again() -> None:
    data = helpers.jpeg(1100, 1010)
    first = region(data, BOXES[0]).ctypes.data
    assert region(data, BOXES[2]).ctypes.data == first


# -- all colours and samples -----------------------------------------------------------------------------------------


def test_all_colours() -> None:
    @numba.njit
    def convert(plane: np.ndarray, count: int, out: np.ndarray) -> None:
        planes, pixels = pointer_to(plane), pointer_to(out)
        for x in range(0, count, CHUNK):
            ycc_to_rgb(planes, u64(x), u64(count + x), u64(2 * count + x), pixels, u64(3 * x))

    light, blue, red = (each.reshape(-1) for each in np.mgrid[0:256:51, 0:256, 0:256].astype(np.int32))
    out = np.empty((len(light), 3), np.uint8)
    convert(np.concatenate([light, blue, red]).astype(np.uint8), len(light), out.reshape(-1))
    cb, cr = blue - 128, red - 128
    more = (91881 * cr + 32768) >> 16, (-22554 * cb - 46802 * cr + 32768) >> 16, (116130 * cb + 32768) >> 16
    expected = np.stack([np.clip(light + each, 0, 255) for each in more], axis=1)
    assert np.array_equal(out, expected)


def test_samples_between_rows() -> None:
    @numba.njit
    def upsample(rows: np.ndarray, width: int, both: np.ndarray, one: np.ndarray) -> None:
        plane = pointer_to(rows)
        two, single = pointer_to(both), pointer_to(one)
        for x in range(1, width - 1, CHUNK):
            upsample_h2v2(plane, u64(x), u64(width + x), u64(2 * width))
            upsample_h2v1(plane, u64(x), u64(2 * width + 2 * CHUNK))
            for i in range(2 * CHUNK):
                two[2 * (x - 1) + i] = plane[2 * width + i]
                single[2 * (x - 1) + i] = plane[2 * width + 2 * CHUNK + i]

    random, width = np.random.default_rng(1), 64 * CHUNK + 2
    rows = random.integers(0, 256, (2, width), np.uint8)
    rows[:, : width // 2] = random.choice(np.array([0, 255], np.uint8), (2, width // 2))
    both, one = np.empty(2 * width - 4, np.uint8), np.empty(2 * width - 4, np.uint8)
    upsample(np.append(rows.reshape(-1), np.zeros(4 * CHUNK, np.uint8)), width, both, one)
    near, far = rows.astype(np.int32)
    for found, column, rounding, shift in ((both, 3 * near + far, (8, 7), 4), (one, near, (1, 2), 2)):
        here = 3 * column[1:-1]
        expected = np.stack([here + column[:-2] + rounding[0], here + column[2:] + rounding[1]], axis=1) >> shift
        assert np.array_equal(found, expected.reshape(-1))
