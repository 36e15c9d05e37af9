"""The cuda backend with hard batches: giant pictures, every format, one broken file among many."""

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
from tests.support.cuda import assert_equals_torchvision, needs_compiler, on_device, stacked
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
