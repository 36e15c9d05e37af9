"""Large JPEG files: opened by their header, read when their pixels are recorded."""

import os
from pathlib import Path

import pytest
from PIL import Image
from torchvision.transforms import functional

import accel
from tests.support import helpers
from tests.support.helpers import is_lazy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "large.jpg"
    path.write_bytes(helpers.jpeg(900, 700, quality=100, subsampling=0))
    assert path.stat().st_size > 1 << 18
    return path


METHODS = {
    "convert": lambda image: image.convert("RGB"),
    "grey": lambda image: image.convert("L"),
    "copy": lambda image: image.copy(),
    "crop": lambda image: image.crop((10, 20, 300, 400)),
    "resize": lambda image: image.resize((64, 48), Image.Resampling.BILINEAR),
    "box": lambda image: image.resize((64, 48), Image.Resampling.BILINEAR, (1.5, 2.5, 600, 601)),
    "reduce": lambda image: image.reduce(3),
    "transpose": lambda image: image.transpose(Image.Transpose.ROTATE_90),
    "extent": lambda image: image.transform((64, 48), Image.Transform.EXTENT, (1, 2, 300.5, 200)),
    "resized_crop": lambda image: functional.resized_crop(image, 10, 20, 300, 200, [64, 64]),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("by", ["path", "file"])
def test_what_is_made_of_one_is_lazy(path: Path, name: str, by: str) -> None:
    method = METHODS[name]
    expected = method(Image.open(path))
    with accel.image_backend("cpu"), path.open("rb") as file:
        image = Image.open(path if by == "path" else file)
        made = method(image)
        assert is_lazy(image)
        assert is_lazy(made)
        assert made.tobytes() == expected.tobytes()
        assert image.tobytes() == Image.open(path).tobytes()


def test_its_size_needs_no_more_than_its_header(path: Path) -> None:
    with accel.image_backend("cpu"):
        image = Image.open(path)
        os.truncate(path, 1 << 16)
        assert (image.size, image.mode, image.format) == ((900, 700), "RGB", "JPEG")
        with pytest.raises(OSError, match="truncated"):
            image.convert("RGB").tobytes()


def test_its_pixels_are_those_of_the_file_that_was_opened(path: Path) -> None:
    expected = Image.open(path).convert("RGB")
    with accel.image_backend("cpu"):
        image = Image.open(path)
        path.unlink()
        path.write_bytes(helpers.jpeg(32, 32))
        assert image.convert("RGB").tobytes() == expected.tobytes()


def test_an_image_without_a_file_has_no_recipe() -> None:
    with accel.image_backend("cpu"):
        image = helpers.picture(8, 6)
        plain = image.tobytes()
        image.__class__ = accel.LazyImage
        assert not is_lazy(image)
        assert image.tobytes() == plain
