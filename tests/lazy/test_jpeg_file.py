"""Images of Image.open are Pillow's JpegImageFile, those made of them are not; both can be given another class."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile, get_sampling
from torchvision import tv_tensors
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from tests.support import helpers


class Own(Image.Image):
    """A user's own class of images, as fastai has one."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A JPEG file with an EXIF orientation and colour that is not halved."""
    exif = Image.Exif()
    exif[0x0112] = 6
    content = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save(content, "JPEG", quality=91, subsampling=0, exif=exif, comment="a", dpi=(72, 72))
    file = tmp_path / "picture.jpg"
    file.write_bytes(content.getvalue())
    return file


def saved(image: Image.Image, **options: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, "JPEG", **options)
    return content.getvalue()


MADE: dict[str, Callable[[Image.Image], Image.Image]] = {
    "open": lambda image: image,
    "copy": lambda image: image.copy(),
    "convert": lambda image: image.convert("L"),
    "convert to the same": lambda image: image.convert("RGB"),
    "crop": lambda image: image.crop((1, 2, 30, 30)),
    "crop nothing": lambda image: image.crop(),
    "resize": lambda image: image.resize((20, 10)),
    "transpose": lambda image: image.transpose(Image.Transpose.ROTATE_90),
    "rotate": lambda image: image.rotate(10),
    "exif_transpose": lambda image: ImageOps.exif_transpose(image),
    "hflip": lambda image: F.hflip(image),
    "pad": lambda image: F.pad(image, [1]),
}


@pytest.mark.parametrize("name", MADE)
def test_only_what_was_opened_is_a_file(path: Path, name: str) -> None:
    def facts() -> Any:
        image = MADE[name](Image.open(path))
        return (
            isinstance(image, JpegImageFile),
            (image.format, image.format_description, getattr(image, "filename", None)),
            (hasattr(image, "layers"), hasattr(image, "quantization"), get_sampling(image)),
            (image.info, dict(image.getexif())),
            np.asarray(image).tolist(),
        )

    helpers.assert_equal_runs(facts)


@pytest.mark.parametrize(
    "options", [{"quality": "keep"}, {"subsampling": "keep"}, {"qtables": "keep"}, {"quality": 80}], ids=str
)
def test_saved_as_it_was(path: Path, options: dict[str, Any]) -> None:
    lazy = helpers.assert_equal_runs(lambda: saved(Image.open(path), **options))
    assert lazy != saved(Image.fromarray(np.asarray(Image.open(path))))  # it would be seen if nothing were kept


def test_equality_is_pillows(path: Path) -> None:
    def facts() -> list[bool]:
        one, other = Image.open(path), Image.open(path)
        return [one == other, one != other, one == one.copy(), one.copy() == one, one.copy() == other.copy()]

    assert helpers.assert_equal_runs(facts) == [True, False, False, False, True]


@pytest.mark.parametrize("name", MADE)
def test_another_class(path: Path, name: str) -> None:
    def facts() -> Any:
        image = MADE[name](Image.open(path))
        image.load()
        image.mine = 3  # type: ignore[attr-defined]
        image.__class__ = Own  # type: ignore[assignment]
        assert type(image) is Own
        assert isinstance(image, Own)
        assert not isinstance(image, accel.LazyImage)
        attributes = vars(image).keys() - {"_im", "_exif", "map"}  # Pillow maps some files, and remembers it
        cropped = image.crop((0, 0, 9, 9))
        return sorted(attributes), image.size, image.info, type(cropped), np.asarray(image).tolist()

    helpers.assert_equal_runs(facts)


def test_a_file_of_it_is_recorded_as_others_are(path: Path) -> None:
    with accel.image_backend("cpu"):
        for transform in (v2.Resize(20), v2.ToImage(), v2.Compose([v2.RandomResizedCrop(20), v2.ToImage()])):
            made = transform(Image.open(path))
            assert isinstance(made, (accel.LazyImage, tv_tensors.Image))
            assert getattr(made, "recipe", None) is not None or hasattr(made, "lazy")


def test_fill_by_type(path: Path) -> None:
    fill = {JpegImageFile: (1, 2, 3), Image.Image: (4, 5, 6), "others": 0}

    def padded() -> Any:
        return np.asarray(v2.Pad(2, fill=fill)(Image.open(path))).tolist()

    helpers.assert_equal_runs(padded)
