"""Opening files: ways to name one, what stays Pillow's, what is left open or closed, decompression bombs."""

import gc
import os
import pickle
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from tests.support import helpers, inside
from tests.support.helpers import assert_same, is_lazy, opened, outcome
from tests.support.processes import descriptors

COLOUR, GREY = helpers.pictures()[0], helpers.pictures()[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "picture.jpg"
    path.write_bytes(COLOUR.data)
    return path


class Sized:
    """A file object whose ``read`` wants a size, of what remains at most so much, as of an archive."""

    def __init__(self, data: bytes, most: int) -> None:
        self._file, self._most = BytesIO(data), most

    def read(self, size: int) -> bytes:
        assert size > 0
        return self._file.read(min(size, self._most))

    def seek(self, *position: int) -> int:
        return self._file.seek(*position)

    def tell(self) -> int:
        return self._file.tell()


def test_ways_to_open(path: Path) -> None:
    expected = COLOUR.open()
    with accel.image_backend("cpu"):
        for argument in (path, str(path), os.fsencode(path), BytesIO(COLOUR.data)):
            image = Image.open(argument)
            assert is_lazy(image)
            assert_same(image, expected)
        with path.open("rb") as file:
            file.seek(17)  # Image.open goes to the start by itself
            assert_same(Image.open(file), expected)
        for most in (1 << 30, 1000):
            image = Image.open(Sized(COLOUR.data, most))  # type: ignore[arg-type]
            assert is_lazy(image)
            assert_same(image, expected)
        stream = BytesIO(COLOUR.data)
        image = Image.open(stream)
        stream.close()
        assert_same(image, expected)


@pytest.mark.parametrize("kind", ["str", "path", "bytes", "file", "stream"])
def test_filename(path: Path, kind: str) -> None:
    with path.open("rb") as file:
        argument: Any = {
            "str": str(path),
            "path": path,
            "bytes": os.fsencode(path),
            "file": file,
            "stream": BytesIO(COLOUR.data),
        }[kind]
        with Image.open(argument) as plain:
            expected = plain.filename  # type: ignore[attr-defined]
        with accel.image_backend("cpu"):
            assert Image.open(argument).filename == expected  # type: ignore[attr-defined]


def test_a_users_file_is_left_open_and_pillows_own_closed(path: Path) -> None:
    with accel.image_backend("cpu"), path.open("rb") as file:
        images = [Image.open(path) for _ in range(50)]
        assert descriptors(path) == 1
        mine = Image.open(file)
        assert not file.closed
        with Image.open(file) as again:
            assert again.size == mine.size
        assert not file.closed
    path.unlink()  # all has been read
    assert_same(images[7], COLOUR.open())
    assert_same(mine, COLOUR.open())


def test_nothing_leaks_when_opening_fails(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.jpg").write_text("no picture")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with accel.image_backend("cpu"):
        for _ in range(20):
            with pytest.raises(Image.DecompressionBombError):
                Image.open(path)
            with pytest.raises(Image.UnidentifiedImageError):
                Image.open(tmp_path / "text.jpg")
        assert descriptors(tmp_path) == 0


def test_a_file_read_into_reused_memory_stays_what_it_was(paths: list[str]) -> None:
    expected = [F.to_tensor(default_loader(path).resize((30, 20))) for path in paths]
    with accel.image_backend("cpu"):
        for _ in range(5):
            images = [default_loader(path) for path in paths]
            small = [image.resize((30, 20)) for image in images]
            pickled = [pickle.dumps(image) for image in small]
            tensors = [F.to_tensor(image) for image in small]
            del images, small
            gc.collect()
            others = [default_loader(path) for path in reversed(paths)]
            assert_same(tensors, expected)
            assert_same([F.to_tensor(pickle.loads(each)) for each in pickled], expected)
            del others


def test_the_with_statement(path: Path) -> None:
    with accel.image_backend("cpu"), Image.open(path) as image:
        inside = image.convert("RGB").resize((20, 20))
        assert is_lazy(image)
    assert_same(inside, COLOUR.open().resize((20, 20)))


CLOSED: dict[str, Callable[[Any, Any], Any]] = {
    "with": lambda image, file: image.__exit__(None, None, None),
    "file": lambda image, file: file.close(),
    "verify": lambda image, file: image.verify(),
}


@pytest.mark.parametrize("close", CLOSED.values(), ids=CLOSED)
def test_an_image_may_be_used_after_its_file_was_closed(close: Callable[[Any, Any], Any]) -> None:
    """A known difference, as the position of the file is."""
    file = BytesIO(COLOUR.data)
    plain = Image.open(file)
    close(plain, file)
    with pytest.raises((AssertionError, AttributeError, ValueError)):
        plain.load()
    with accel.image_backend("cpu"):
        file = BytesIO(COLOUR.data)
        image = Image.open(file)
        assert file.tell() == len(COLOUR.data)
        close(image, file)
        assert_same(image, COLOUR.open())


def test_a_large_file_is_not_used_after_it_was_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside.small_files_opened_as_large(monkeypatch)
    with accel.image_backend("cpu"):
        with Image.open(path) as image:
            pass
        with pytest.raises(ValueError, match="closed"):
            image.resize((9, 9))


def test_formats() -> None:
    with accel.image_backend("cpu"):
        assert is_lazy(Image.open(BytesIO(COLOUR.data), formats=["JPEG"]))
        assert is_lazy(Image.open(BytesIO(COLOUR.data), formats=("PNG", "jpeg")))
        with pytest.raises(Image.UnidentifiedImageError):
            Image.open(BytesIO(COLOUR.data), formats=["PNG"])
        with pytest.raises(TypeError):
            Image.open(BytesIO(COLOUR.data), formats="JPEG")  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            Image.open(BytesIO(COLOUR.data), mode="w")  # type: ignore[arg-type]


def test_other_formats_stay_pillows() -> None:
    for format_, mode in (("PNG", "RGB"), ("GIF", "P"), ("BMP", "RGB"), ("JPEG", "CMYK"), ("WEBP", "RGB")):
        stream = BytesIO()
        helpers.picture(30, 20).convert(mode).save(stream, format_)
        stream.seek(0)
        with accel.image_backend("cpu"):
            image = Image.open(stream)
        assert not isinstance(image, accel.LazyImage)
        stream.seek(0)
        assert_same(image, Image.open(stream))


@pytest.mark.parametrize("size", [(300, 200), (60, 50), (40, 30)])
def test_crops_larger_than_the_limit(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    lazy, plain = opened(COLOUR)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)

    def crop(image: Image.Image) -> list[Any]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = outcome(lambda: image.crop((0, 0, *size)).tobytes())
        return [result, *(warning.category for warning in caught)]

    assert crop(lazy) == crop(plain)
