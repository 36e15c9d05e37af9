"""Pillow's ImageEnhance and ImageOps on lazy images, as timm's policies use them."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms import functional as F

import accel
from tests.support import helpers

CLASSES = (ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Contrast, ImageEnhance.Sharpness)
FILES = {mode: helpers.jpeg(61, 47, mode) for mode in ("RGB", "L")}


def opened(mode: str = "RGB") -> Any:
    return Image.open(io.BytesIO(FILES[mode]))


@pytest.mark.parametrize("factor", [0, 0.0, 0.3, 1.0, 1.9, -0.4])
@pytest.mark.parametrize("enhancer", CLASSES, ids=lambda cls: cls.__name__)
def test_enhancers(enhancer: Any, factor: float) -> None:
    def enhanced() -> Any:
        images = [opened(mode) for mode in FILES]
        made = [enhancer(image).enhance(factor) for image in images]
        return images, made, [image.info for image in made]

    helpers.assert_equal_runs(enhanced, lazy=True)


@pytest.mark.parametrize("enhancer", CLASSES, ids=lambda cls: cls.__name__)
def test_what_an_enhancer_holds(enhancer: Any) -> None:
    expected = enhancer(opened())
    with accel.image_backend("cpu"):
        image = opened()
        found = enhancer(image)
        assert found.image is image
        assert np.array_equal(np.asarray(found.degenerate), np.asarray(expected.degenerate))
        assert getattr(found, "intermediate_mode", None) == getattr(expected, "intermediate_mode", None)
        # its pixels were asked for, and may have been painted on
        found.degenerate.paste((255, 0, 0), (0, 0, 20, 20))
        expected.degenerate.paste((255, 0, 0), (0, 0, 20, 20))
        assert np.array_equal(np.asarray(found.enhance(0.5)), np.asarray(expected.enhance(0.5)))


def test_an_enhancer_whose_images_are_exchanged() -> None:
    def exchanged() -> Image.Image:
        enhancer = ImageEnhance.Color(opened())
        enhancer.image = ImageOps.mirror(enhancer.image)
        return enhancer.enhance(0.4)

    helpers.assert_equal_runs(exchanged)


def test_painting_after_the_enhancer_was_made() -> None:
    def painted() -> Image.Image:
        image = opened()
        enhancer = ImageEnhance.Contrast(image)
        image.paste((255, 0, 0), (0, 0, 30, 30))
        return enhancer.enhance(0.4)

    helpers.assert_equal_runs(painted)


class Custom(ImageEnhance.Brightness):
    def enhance(self, factor: float) -> Image.Image:
        return super().enhance(factor / 2)


OTHERS: dict[str, Callable[[Any], Image.Image]] = {
    "equalize": ImageOps.equalize,
    "autocontrast": ImageOps.autocontrast,
    "equalize-mask": lambda image: ImageOps.equalize(image, Image.new("L", image.size, 1)),
    "autocontrast-cutoff": lambda image: ImageOps.autocontrast(image, 5),
    "autocontrast-tone": lambda image: ImageOps.autocontrast(image, preserve_tone=True),
    "custom-class": lambda image: Custom(image).enhance(1.4),
    "nan": lambda image: ImageEnhance.Color(image).enhance(float("inf")),
    "converted": lambda image: ImageEnhance.Color(image.convert("L").convert("RGB")).enhance(0.5),
}


LATE = {"equalize", "autocontrast", "converted", "autocontrast-tone"}  # the last asks a grey copy for its pixels


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions(name: str) -> None:
    expected = OTHERS[name](opened())
    with accel.image_backend("cpu"):
        found = OTHERS[name](opened())
        assert helpers.is_lazy(found) == (name in LATE)
        assert np.array_equal(np.asarray(found), np.asarray(expected))


def test_eager_images_stay_pillows() -> None:
    with accel.image_backend("cpu"):
        image = helpers.picture(30, 20)
        assert type(ImageEnhance.Contrast(image).enhance(0.5)) is Image.Image
        assert type(ImageOps.equalize(image)) is Image.Image


def test_everything_is_given_back() -> None:
    before = [cls.__init__.__code__ for cls in CLASSES]
    with accel.image_backend("cpu"):
        assert [cls.__init__.__code__ for cls in CLASSES] != before
    assert [cls.__init__.__code__ for cls in CLASSES] == before
    lazy = ImageEnhance.Contrast(opened()).enhance(0.5)
    assert type(lazy) is Image.Image
    assert F.get_image_size(lazy) == [61, 47]
