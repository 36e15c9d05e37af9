"""The cuda backend's passes alone: what the host does not run for them, and addresses beyond 32 bits."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

from accel.backends.cuda import CudaBackend
from accel.backends.cuda.descriptors import COPY, PASS, TILE_COLUMNS, TILE_ROWS
from accel.backends.cuda.host import function
from tests.support.cuda import assert_equals_torchvision, host_only, needs_compiler, noise, stacked

pytestmark = needs_compiler

COLOURS = (
    lambda image: F.adjust_brightness(image, 1.3),
    lambda image: F.adjust_gamma(image, 0.7),
    F.invert,
    lambda image: F.solarize(image, 100),
    lambda image: F.posterize(image, 3),
)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("number", range(len(COLOURS)))
def test_levels_between_passes_and_at_the_end(number: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaBackend, "_on_host", lambda self, plan: pytest.fail("the host ran them"))
    first, then = COLOURS[number], COLOURS[number - 2]
    images = [noise(60 + n, 83, mode, n) for n in range(3)]

    def transform(image: Image.Image) -> torch.Tensor:
        image = F.pad(first(F.resize(first(image), [50, 41])), [3], fill=7)
        return F.to_tensor(then(F.hflip(F.resize(image, [20, 30]))))

    assert_equals_torchvision(lambda: stacked(images, transform))
    assert_equals_torchvision(lambda: then(first(images[0])))


def stage(**fields: Any) -> Any:
    """A stage that copies, for a kernel on its own."""
    item = np.zeros(1, PASS)
    for name, value in {"mode": COPY, "itemsize": 1, "across": 1, "planar": 1, **fields}.items():
        item[name] = value
    return item


def axis(start: int, stride: int) -> tuple[int, ...]:
    return 0, 0, 0, stride, start, 1, 0, 0


def run_one_block(item: Any) -> None:
    owners = np.zeros(1, np.int32)
    function("pass3")(1, item.ctypes.data, owners.ctypes.data)


@host_only
def test_a_source_beyond_two_gigabytes() -> None:
    height, width = 40_000, 18_000
    pixels = np.frombuffer(mmap.mmap(-1, height * width * 3), np.uint8).reshape(height, width, 3)  # untouched pages
    pixels[-9:, -7:] = corner = np.random.default_rng(0).integers(1, 256, (9, 7, 3), np.uint8)
    out = np.zeros((3, 9, 7), np.uint8)
    where = {"source": pixels.ctypes.data, "target": out.ctypes.data, "height": 9, "width": 7}
    run_one_block(stage(**where, rows=axis(height - 9, width * 3), columns=axis(width - 7, 3)))
    assert np.array_equal(out, corner.transpose(2, 0, 1))


@host_only
@pytest.mark.parametrize("planar", [True, False])
def test_a_result_beyond_four_gigabytes(planar: bool) -> None:
    side = 38_400  # whole tiles; three channels of bytes are 4.4e9
    rows, columns = side // TILE_ROWS, side // TILE_COLUMNS
    source = np.random.default_rng(0).integers(1, 256, (TILE_ROWS, TILE_COLUMNS, 3), np.uint8)
    out = np.frombuffer(mmap.mmap(-1, side * side * 3), np.uint8)
    item = stage(  # the last tile shows the source
        source=source.ctypes.data, target=out.ctypes.data, height=side, width=side, across=columns, planar=planar,
        first_block=1 - rows * columns, rows=axis(TILE_ROWS - side, TILE_COLUMNS * 3),
        columns=axis(TILE_COLUMNS - side, 3),
    )  # fmt: skip
    run_one_block(item)
    image = out.reshape(3, side, side).transpose(1, 2, 0) if planar else out.reshape(side, side, 3)
    assert np.array_equal(image[-TILE_ROWS:, -TILE_COLUMNS:], source)
