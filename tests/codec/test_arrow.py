"""Pixels copied from Pillow's own memory equal ``Image.tobytes``."""

import gc
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.codec import arrow
from tests.support import helpers, inside

needs_arrow = pytest.mark.skipif(not hasattr(Image.Image, "__arrow_c_array__"), reason="Pillow before 11.2")


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    return Image.fromarray(np.random.default_rng(width * height).integers(0, 256, shape, np.uint8))


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (4, 4), (15, 1), (16, 1), (17, 1), (31, 2), (33, 47), (500, 375)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_equal_to_tobytes(size: tuple[int, int], mode: str) -> None:
    image = picture(*size, mode)
    assert bytes(arrow.pixels(image)) == image.tobytes()
    cropped = image.crop((1, 1, size[0] + 2, size[1] + 2))  # black outside
    assert bytes(arrow.pixels(cropped)) == cropped.tobytes()


@needs_arrow
def test_colour_is_read_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    image = picture(33, 21)
    expected = image.tobytes()

    def no(*args: Any) -> bytes:
        raise AssertionError("tobytes was called")

    monkeypatch.setattr(Image.Image, "tobytes", no)
    assert bytes(arrow.pixels(image)) == expected


def test_a_copy() -> None:
    image = picture(40, 30)
    before = image.tobytes()
    found = arrow.pixels(image)
    image.paste((1, 2, 3), (0, 0, 40, 30))
    assert bytes(found) == before != image.tobytes()
    with pytest.raises((TypeError, ValueError)):
        found[0] = 1  # type: ignore[index]
    del image
    gc.collect()
    assert bytes(found) == before


@needs_arrow
def test_an_image_in_several_blocks() -> None:
    image = picture(3000, 1500)  # 18 MB in Pillow's memory, in blocks of 16
    with pytest.raises(ValueError, match=r".*"):
        image.__arrow_c_array__()
    assert bytes(arrow.pixels(image)) == image.tobytes()


def test_rows_that_are_aligned() -> None:
    Image.core.set_alignment(64)
    try:
        image = picture(33, 21)
        expected = image.tobytes()
        assert bytes(arrow.pixels(image)) == expected
    finally:
        Image.core.set_alignment(1)


@needs_arrow
@pytest.mark.parametrize("size", [(1, 1), (5, 3), (33, 47), (500, 375)])
def test_luma(size: tuple[int, int]) -> None:
    image = picture(*size)
    found = arrow.luma(image)
    assert found is not None
    assert bytes(found) == image.convert("L").tobytes()


@needs_arrow
@pytest.mark.parametrize(
    "box", [(0, 0, 1, 1), (3, 5, 20, 7), (3, 5, 20, 16), (1, 0, 30, 33), (46, 32, 1, 1), (0, 2, 47, 31)]
)
def test_regions(box: tuple[int, int, int, int]) -> None:
    image, (top, left, height, width) = picture(33, 47), box
    found = arrow.region(image, box)
    assert found is not None
    assert bytes(found) == image.crop((left, top, left + width, top + height)).tobytes()


@pytest.mark.parametrize("box", [(3, 5, 20, 17), (0, 0, 47, 33), (-3, 5, 20, 17), (30, 20, 30, 30), (60, 60, 4, 4)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_crop_of_an_eager_image(box: tuple[int, int, int, int], mode: str) -> None:
    image = picture(33, 47, mode)
    image.info["comment"] = "kept"
    expected = F.crop(image, *box)
    with accel.image_backend("cpu"):
        lazy = F.crop(image, *box)
        assert helpers.is_lazy(lazy)
        image.paste(7, (0, 0, 33, 47))
        assert lazy.info == expected.info
        assert lazy.size == expected.size
        assert lazy.tobytes() == expected.tobytes()


def test_a_luma_that_is_not_pillows_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = Image.Image.convert
    monkeypatch.setattr(
        Image.Image, "convert", lambda image, mode: convert(image, mode).point(lambda level: level // 2)
    )
    with inside.anew(arrow._luma_agrees):
        assert arrow.luma(picture(9, 9)) is None


def test_grey_of_an_eager_image() -> None:
    image = picture(40, 30)
    image.info["comment"] = "kept"
    expected = F.rgb_to_grayscale(image)
    with accel.image_backend("cpu"):
        lazy = F.rgb_to_grayscale(image, 1)
        assert helpers.is_lazy(lazy)
        image.paste((1, 2, 3), (0, 0, 40, 30))
        assert lazy.mode == "L"
        assert lazy.info == expected.info
        assert lazy.tobytes() == expected.tobytes()
        assert helpers.is_lazy(F.rgb_to_grayscale(picture(4, 4, "L"), 1))
        with pytest.raises(ValueError, match="1 or 3"):
            F.to_grayscale(picture(4, 4), 2)
