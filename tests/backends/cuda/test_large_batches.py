"""The cuda backend with hard batches: giant pictures, every format, one broken file among many."""

import mmap
import os
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F

import accel
from accel.backends.cuda import host
from accel.backends.cuda.descriptors import (
    EFFECT,
    EFFECT_OPS,
    LINES,
    MODES,
    PASS,
    PATCH,
    TILE,
    TILE_COLUMNS,
    TILE_ROWS,
)
from tests.support.cuda import assert_equals_torchvision, host_only, needs_compiler, on_device, stacked
from tests.support.helpers import assert_same, jpeg, picture, seed_everything, undecodable
from tests.support.transforms import made

pytestmark = needs_compiler


@cache
def giant(height: int, width: int) -> bytes:
    """A JPEG file of slow gradients, which are few bytes."""
    pixels = np.full((height, width, 3), 128, np.uint8)
    pixels[..., 0] = np.arange(height)[:, None] * 255 // height
    pixels[..., 1] = np.arange(width) * 255 // width
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=60)
    return stream.getvalue()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    "size",
    [(16384, 1024), (1024, 16384), (8000, 8000), pytest.param((13000, 13000), marks=pytest.mark.sweep)],
    ids=str,
)
def test_the_far_corner_of_a_giant_file(size: tuple[int, int]) -> None:
    height, width = size

    def result() -> torch.Tensor:
        image = Image.open(BytesIO(giant(*size)))
        corner = F.resized_crop(image, height - 300, width - 400, 300, 400, [64, 64])
        return torch.stack([F.to_tensor(F.equalize(corner))])

    assert_equals_torchvision(result)


@pytest.mark.parametrize("size", [(16384, 1024), pytest.param((1024, 16384), marks=pytest.mark.sweep)], ids=str)
def test_a_giant_picture_as_a_whole_among_small_ones(size: tuple[int, int]) -> None:
    def result() -> torch.Tensor:
        images = [Image.open(BytesIO(each)) for each in (jpeg(40, 30), giant(*size), jpeg(1, 1))]
        return stacked(images, lambda image: F.to_tensor(F.resize(F.autocontrast(F.equalize(image)), [48, 48])))

    expected = assert_equals_torchvision(result)
    assert_same(on_device(result, memory=8 << 20), expected)


def saved(mode: str, kind: str, seed: int, **options: Any) -> bytes:
    stream = BytesIO()
    picture(90 + seed, 70, "RGB", seed).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


FORMATS: tuple[Callable[[], bytes], ...] = (
    lambda: saved("RGB", "JPEG", 0),
    lambda: saved("RGB", "JPEG", 1, progressive=True),
    lambda: saved("CMYK", "JPEG", 2),
    lambda: saved("L", "JPEG", 3),
    lambda: saved("RGB", "PNG", 4),
    lambda: saved("P", "PNG", 5),
    lambda: saved("RGBA", "PNG", 6),
    lambda: saved("1", "PNG", 7),
    lambda: saved("RGB", "WEBP", 8),
    lambda: saved("L", "BMP", 9),
    lambda: saved("P", "GIF", 10),
    lambda: saved("RGB", "TIFF", 11),
)


@pytest.mark.parametrize("name", ["RandAugment", "ColorJitter"])
def test_a_batch_of_all_formats(name: str) -> None:
    policy = made(name, T)

    def result() -> torch.Tensor:
        seed_everything(4)
        images = [Image.open(BytesIO(each())).convert("RGB") for each in FORMATS]
        return stacked(images, lambda image: F.to_tensor(policy(F.resize(image, [40, 40]))))

    for memory in (None, 200_000):
        assert_equals_torchvision(result, memory=memory)


@pytest.mark.skipif("ACCEL_TEST_PHOTOS" not in os.environ, reason="ACCEL_TEST_PHOTOS names no folder")
@pytest.mark.parametrize("name", ["RandAugment", "ColorJitter"])
def test_photos(name: str) -> None:
    """Any folder of JPEG files, as a train pipeline has them."""
    files = sorted(Path(os.environ["ACCEL_TEST_PHOTOS"]).rglob("*.jp*g"))
    assert files
    cut = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    policy, erase = made(name, T), T.RandomErasing(0.5, value="random")

    def result() -> torch.Tensor:
        seed_everything(5)
        images = [Image.open(file).convert("RGB") for file in files]
        return stacked(images, lambda image: erase(F.to_tensor(policy(cut(image)))))

    assert_equals_torchvision(result)


def test_one_broken_file_among_128() -> None:
    good = [jpeg(24 + n % 5, 20 + n % 3, seed=n % 16) for n in range(128)]
    broken = [*good[:90], undecodable(), *good[91:]]
    policy = T.RandAugment()

    def result(streams: list[bytes]) -> torch.Tensor:
        seed_everything(0)
        images = [Image.open(BytesIO(each)) for each in streams]
        return stacked(images, lambda image: F.to_tensor(policy(F.resize(image, [16, 16]))))

    with pytest.raises(accel.DecodeError, match=r"\(image 90 of a batch of 128\)"):
        on_device(lambda: result(broken))
    with accel.image_backend("torchvision"):
        expected = result(good)
    found = on_device(lambda: result(broken), on_error="replace")
    others = torch.arange(128) != 90
    assert torch.equal(found[others], expected[others])
    assert not torch.equal(found[90], expected[90])


# -- places beyond 32 bits -------------------------------------------------------------------------------------------


def run_block(kernel: str, item: Any) -> None:
    owners = np.zeros(1, np.int32)
    host.function(kernel)(1, item.ctypes.data, owners.ctypes.data)


def item_of(kind: Any, **fields: Any) -> Any:
    item = np.zeros(1, kind)
    for name, value in fields.items():
        item[name] = value
    return item


def effect(**fields: Any) -> Any:
    return item_of(
        EFFECT, **{"op": EFFECT_OPS["COPIED"], "channels": 3, "output_channels": 3, "across": 1, "blocks": 1, **fields}
    )


def untouched(*shape: int) -> Any:
    """Zeros that take memory where they are written."""
    return np.frombuffer(mmap.mmap(-1, int(np.prod(shape))), np.uint8).reshape(shape)


@host_only
@pytest.mark.parametrize("op", ["COPIED", "FIXED", "WARPED", "TRANSPOSED"])
def test_a_source_beyond_two_gigabytes(op: str) -> None:
    rows, columns = (18_000, 40_000) if op == "TRANSPOSED" else (40_000, 18_000)
    pixels = untouched(rows, columns, 3)
    pixels[-9:, -7:] = corner = np.random.default_rng(0).integers(1, 256, (9, 7, 3), np.uint8)
    height, width = (7, 9) if op == "TRANSPOSED" else (9, 7)
    out = np.zeros((height, width, 3), np.uint8)
    numbers = {
        "FIXED": ((columns - 7) << 16, 1 << 16, 0, (rows - 9) << 16, 0, 1 << 16),
        "WARPED": (1, 0, columns - 7, 0, 1, rows - 9),
    }.get(op, ())
    first = 0 if numbers else (rows - 9) * columns * 3 + (columns - 7) * 3
    run_block(
        "effects",
        effect(
            source=pixels.ctypes.data + first, pitch=columns * 3, rows=rows, columns=columns, target=out.ctypes.data,
            height=height, width=width, op=EFFECT_OPS[op], numbers=(*numbers, *(0,) * (8 - len(numbers))),
        ),
    )  # fmt: skip
    assert np.array_equal(out, corner.transpose(1, 0, 2) if op == "TRANSPOSED" else corner)


@host_only
def test_a_result_beyond_four_gigabytes() -> None:
    side = 38_400
    across = side // TILE
    source = np.random.default_rng(0).integers(1, 256, (TILE, TILE, 3), np.uint8)
    out = untouched(side, side, 3)
    first = (side - TILE) * (TILE * 3 + 3)  # so that the last tile shows the source
    run_block(
        "effects",
        effect(
            source=source.ctypes.data - first, pitch=TILE * 3, rows=side, columns=side, target=out.ctypes.data,
            height=side, width=side, across=across, first_block=1 - across * across,
        ),
    )  # fmt: skip
    assert np.array_equal(out[-TILE:, -TILE:], source)


@host_only
@pytest.mark.parametrize("planar", [0, 1])
def test_a_patch_beyond_four_gigabytes(planar: int) -> None:
    side = 38_000
    values = np.random.default_rng(0).integers(1, 256, (3, LINES, 5), np.uint8)
    out = untouched(3, side, side) if planar else untouched(side, side, 3)
    item = item_of(
        PATCH, target=out.ctypes.data, values=values.ctypes.data, channels=3, height=side, width=side,
        top=side - LINES, left=side - 5, rows=LINES, columns=5, given_rows=LINES, given_columns=5,
        itemsize=1, planar=planar, first_block=-2 * planar,
    )  # fmt: skip
    run_block("patch", item)
    last = out[2, -LINES:, -5:] if planar else out[-LINES:, -5:].transpose(2, 0, 1)
    assert np.array_equal(last, values[2] if planar else values)


def stage(**fields: Any) -> Any:
    """A stage that copies, for a kernel on its own."""
    return item_of(PASS, **{"mode": MODES["COPY"], "itemsize": 1, "across": 1, "planar": 1, **fields})


def axis(start: int, stride: int) -> tuple[int, ...]:
    return 0, 0, 0, stride, start, 1, 0, 0


@host_only
def test_a_source_of_a_pass_beyond_two_gigabytes() -> None:
    height, width = 40_000, 18_000
    pixels = untouched(height, width, 3)
    pixels[-9:, -7:] = corner = np.random.default_rng(0).integers(1, 256, (9, 7, 3), np.uint8)
    out = np.zeros((3, 9, 7), np.uint8)
    where = {"source": pixels.ctypes.data, "target": out.ctypes.data, "height": 9, "width": 7}
    run_block("pass3", stage(**where, rows=axis(height - 9, width * 3), columns=axis(width - 7, 3)))
    assert np.array_equal(out, corner.transpose(2, 0, 1))


@host_only
@pytest.mark.parametrize("planar", [True, False])
def test_a_result_of_a_pass_beyond_four_gigabytes(planar: bool) -> None:
    side = 38_400  # whole tiles; three channels of bytes are 4.4e9
    rows, columns = side // TILE_ROWS, side // TILE_COLUMNS
    source = np.random.default_rng(0).integers(1, 256, (TILE_ROWS, TILE_COLUMNS, 3), np.uint8)
    out = untouched(side * side * 3)
    item = stage(  # the last tile shows the source
        source=source.ctypes.data, target=out.ctypes.data, height=side, width=side, across=columns, planar=planar,
        first_block=1 - rows * columns, rows=axis(TILE_ROWS - side, TILE_COLUMNS * 3),
        columns=axis(TILE_COLUMNS - side, 3),
    )  # fmt: skip
    run_block("pass3", item)
    image = out.reshape(3, side, side).transpose(1, 2, 0) if planar else out.reshape(side, side, 3)
    assert np.array_equal(image[-TILE_ROWS:, -TILE_COLUMNS:], source)
