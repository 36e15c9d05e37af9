"""``on_error="replace"``: an epoch goes through every damaged file; what is black, counted, and what still raises."""

import logging
import os
import pickle
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import GifImagePlugin, Image, ImageFile, TiffImagePlugin
from torch.utils.data import DataLoader
from torchvision import io
from torchvision import transforms as T
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from accel.system import replaced, shared_list
from tests.support import damage, helpers
from tests.support.backends import Backend
from tests.support.damage import GOOD, KINDS, NOT_FOR_TORCHVISION, PILLOW, SIZED, TORCHVISION, saved

pytestmark = [
    pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Corrupt EXIF data:UserWarning"),  # Pillow's, of a TIFF file
]

TIMEOUT = 100
STEPS = T.Compose([T.Pad(3, (255, 0, 9)), T.Resize((24, 32)), T.ToTensor()])
LOADERS: dict[str, dict[str, Any]] = {
    "none": {},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork", "timeout": TIMEOUT},
    "spawn": {"num_workers": 1, "multiprocessing_context": "spawn", "timeout": TIMEOUT},
}


@pytest.fixture(autouse=True)
def _list(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A list of this test's own."""
    monkeypatch.setattr(shared_list, "_file", None)
    monkeypatch.setattr(replaced, "_unlisted", [])
    yield
    with suppress(OSError):  # there is none
        os.close(shared_list.share())


def names() -> list[str]:
    found: list[str] = accel.stats()["replaced files"]
    return found


def count() -> int:
    found: int = accel.stats()["replaced"]
    return found


def size_of(kind: str) -> tuple[int, int]:
    return (64, 48) if kind in SIZED else (256, 256)


def write_all(root: Path) -> dict[str, Path]:
    """A file of every kind of damage, each followed by a good one."""
    paths = {}
    for kind, data in KINDS.items():
        paths[kind] = root / f"{kind}.img"
        paths[kind].write_bytes(data)
        paths[f"{kind}, next"] = root / f"{kind}-next.jpg"
        paths[f"{kind}, next"].write_bytes(GOOD)
    return paths


def sample(path: str) -> torch.Tensor:
    return STEPS(default_loader(path))  # type: ignore[no-any-return]


# -- an epoch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["none", "fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_an_epoch_goes_through_every_damaged_file(tmp_path: Path, backend: Backend, how: str) -> None:
    if how == "spawn" and backend.name != "cpu":
        pytest.skip("one is enough")
    paths = write_all(tmp_path)
    good = STEPS(default_loader(str(paths["empty, next"])))
    before = count()
    with backend.chosen(on_error="replace"):
        loader = DataLoader(helpers.Each(list(map(str, paths.values())), sample), 5, **LOADERS[how])
        found = torch.cat([batch + 0 for batch in helpers.batches(loader)])
    for kind, image in zip(paths, found, strict=True):
        expected = STEPS(Image.new("RGB", size_of(kind))) if kind in KINDS else good
        assert torch.equal(image, expected), kind
    assert count() - before == len(KINDS)
    assert sorted(names()) == sorted(str(paths[kind]) for kind in KINDS)


@pytest.mark.parametrize("reader", PILLOW)
@pytest.mark.parametrize("kind", KINDS)
def test_pillows_files(tmp_path: Path, kind: str, reader: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / f"{kind}.img"
    path.write_bytes(KINDS[kind])
    caplog.set_level(logging.INFO, "accel")
    with accel.image_backend("cpu", on_error="replace"):
        image = PILLOW[reader](path) + 0
    assert torch.equal(image, torch.zeros((3, *size_of(kind)[::-1]), dtype=torch.uint8))
    assert names() == [str(path)]
    assert [str(path) in record.message for record in caplog.records if "by black" in record.message][-1:] == [True]


@pytest.mark.parametrize("reader", TORCHVISION)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NOT_FOR_TORCHVISION])
def test_torchvision_ios_files(tmp_path: Path, kind: str, reader: str) -> None:
    path = tmp_path / f"{kind}.img"
    path.write_bytes(KINDS[kind])
    before = count()
    with accel.image_backend("cpu", on_error="replace"):
        image = TORCHVISION[reader](path) + 0
    known = kind in SIZED and KINDS[kind][:2] == b"\xff\xd8" and not kind.startswith("cmyk")
    assert torch.equal(image, torch.zeros((3, *((48, 64) if known else (256, 256))), dtype=torch.uint8))
    assert count() == before + 1
    assert names() == ([str(path)] if reader == "read_image" else ["image in memory"])


@pytest.mark.parametrize(
    ("mode", "channels"), [("UNCHANGED", 3), ("GRAY", 1), ("GRAY_ALPHA", 2), ("RGB", 3), ("RGBA", 4)]
)
def test_torchvision_ios_modes(tmp_path: Path, mode: Any, channels: int) -> None:
    stream = torch.frombuffer(bytearray(KINDS["png-half"]), dtype=torch.uint8)
    with accel.image_backend("cpu", on_error="replace"):
        for read in (io.decode_image, io.decode_png):
            assert torch.equal(read(stream, mode), torch.zeros((channels, 256, 256), dtype=torch.uint8))
        assert io.decode_gif(stream[:3]).shape == (3, 256, 256)
        several = io.decode_jpeg([torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in (GOOD, b"text")])
        assert [tuple(each.shape) for each in several] == [(3, 48, 64), (3, 256, 256)]
        assert several[0].any()
        assert not several[1].any()


# -- what is black, and of which size -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_black_in_every_mode(mode: str) -> None:
    with accel.image_backend("cpu", on_error="replace"):
        image = Image.open(BytesIO(damage.half(saved("PNG", mode) if mode != "I;16" else sixteen())))
        assert image.mode in (mode, "I")
        image.load()
        assert image.size == (64, 48)
        assert not torch.any(F.pil_to_tensor(image.convert("RGB")))


def sixteen() -> bytes:
    stream = BytesIO()
    helpers.picture(64, 48, "L").convert("I;16").save(stream, "PNG")
    return stream.getvalue()


def test_black_in_cmyk() -> None:
    with accel.image_backend("cpu", on_error="replace"):
        assert Image.open(BytesIO(KINDS["cmyk-half"])).convert("RGB").getextrema() == ((0, 0),) * 3


def test_an_image_that_was_replaced_is_an_image(tmp_path: Path) -> None:
    path = tmp_path / "text.jpg"
    path.write_bytes(KINDS["text"])
    with accel.image_backend("cpu", on_error="replace"):
        with Image.open(path) as image:
            assert image.filename == str(path)
            assert (image.mode, image.size) == ("RGB", (256, 256))
        with Image.open(BytesIO(KINDS["png-half"])) as image:
            assert image.load()[0, 0] == (0, 0, 0)
            assert image.format == "PNG"
            assert pickle.loads(pickle.dumps(image)).tobytes() == bytes(64 * 48 * 3)
            assert image.copy().resize((5, 5)).tobytes() == bytes(75)
        assert Image.open(BytesIO(KINDS["bmp-half"])).load()[1, 1] == (0, 0, 0)
    assert image.tobytes() == bytes(64 * 48 * 3)


def test_what_was_opened_under_replace_is_replaced_outside() -> None:
    with accel.image_backend("cpu"):
        with accel.image_backend("cpu", on_error="replace"):
            image = Image.open(BytesIO(KINDS["png-half"]))
        assert image.tobytes() == bytes(64 * 48 * 3)
        with pytest.raises(OSError, match="truncated"):
            Image.open(BytesIO(KINDS["png-half"])).load()


# -- what still raises --------------------------------------------------------------------------------------


def test_what_is_no_damaged_file_raises(tmp_path: Path) -> None:
    missing, folder = str(tmp_path / "missing.jpg"), str(tmp_path)
    readers = (default_loader, Image.open, io.read_image, io.decode_image, io.read_file)
    before = count()
    for read in readers:
        for path in (missing, folder):
            with pytest.raises((OSError, RuntimeError)) as expected:
                read(path)
            with accel.image_backend("cpu", on_error="replace"), pytest.raises(type(expected.value)):
                read(path)
    assert count() == before


class Remote(BytesIO):
    """A file whose connection breaks."""

    def __init__(self, error: Exception) -> None:
        super().__init__(GOOD)
        self.error = error

    def read(self, size: int | None = -1) -> bytes:
        raise self.error


@pytest.mark.parametrize(
    "error", [PermissionError(13, "no"), ConnectionError("gone"), KeyError("key"), OSError("mine")]
)
def test_what_a_file_object_raises_is_raised(error: Exception) -> None:
    with accel.image_backend("cpu", on_error="replace"), pytest.raises(type(error)):
        Image.open(Remote(error))


def test_wrong_arguments_raise() -> None:
    jpeg = torch.frombuffer(bytearray(GOOD), dtype=torch.uint8)
    calls: list[Any] = [
        lambda: Image.open(BytesIO(GOOD), "w"),  # type: ignore[arg-type]
        lambda: Image.open(BytesIO(GOOD), formats="JPEG"),  # type: ignore[arg-type]
        lambda: Image.open(None),  # type: ignore[arg-type]
        lambda: Image.open(closed()),
        lambda: Image.open(opened_and_closed()).load(),
        lambda: io.decode_jpeg(jpeg, "RGBA"),
        lambda: io.decode_image(jpeg, "GRAY_ALPHA"),
        lambda: io.decode_png(jpeg.float()),
        lambda: io.decode_png(jpeg, "FOO"),
        lambda: io.decode_image(jpeg[None]),
    ]
    for call in calls:
        with pytest.raises(Exception) as expected:
            call()
        with accel.image_backend("cpu", on_error="replace"), pytest.raises(type(expected.value)):
            call()


def closed() -> BytesIO:
    stream = BytesIO(GOOD)
    stream.close()
    return stream


def opened_and_closed() -> BytesIO:
    stream = BytesIO(saved("PNG"))
    image = Image.open(stream)
    stream.close()
    image.load()
    return stream


def test_pillows_parser_still_waits_for_more() -> None:
    data = saved("PNG")
    with accel.image_backend("cpu", on_error="replace"):
        parser = ImageFile.Parser()
        for start in range(0, len(data), 100):
            parser.feed(data[start : start + 100])
        assert parser.close().tobytes() == helpers.picture(64, 48).tobytes()


def test_damage_that_another_plug_in_finds_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    scope: dict[str, Any] = {"__name__": "somebodys.plugin"}
    exec("def opener(fp, filename): raise ValueError('damaged')", scope)
    monkeypatch.setitem(Image.OPEN, "OTHER", (scope["opener"], lambda prefix: prefix.startswith(b"other")))
    monkeypatch.setattr(Image, "ID", ["OTHER", *Image.ID])
    with pytest.raises(ValueError, match="damaged"):
        Image.open(BytesIO(b"other picture"))
    with accel.image_backend("cpu", on_error="replace"):
        assert Image.open(BytesIO(b"other picture")).size == (256, 256)


def test_nothing_is_replaced_under_torchvision(tmp_path: Path) -> None:
    path = tmp_path / "file.img"
    for kind in ("text", "png-half", "half"):
        path.write_bytes(KINDS[kind])
        with (
            accel.image_backend("cpu", on_error="replace"),
            accel.image_backend("torchvision"),
            pytest.raises(OSError),
        ):
            default_loader(str(path))
    assert names() == []


def test_every_class_of_pillows_is_as_it_was() -> None:
    classes = (ImageFile.ImageFile, TiffImagePlugin.TiffImageFile, GifImagePlugin.GifImageFile)
    before = [vars(cls).get("load") for cls in classes]
    with accel.image_backend("cpu", on_error="replace"):
        for format in ("TIFF", "PNG", "GIF", "PNG"):
            Image.open(BytesIO(saved(format))).load()
        assert [vars(cls).get("load") for cls in classes] != before
    assert [vars(cls).get("load") for cls in classes] == before


# -- the list of names --------------------------------------------------------------------------------------


def replace(names: list[str]) -> None:
    for name in names:
        replaced.replaced(name, "damaged")


def test_the_first_hundred_names_once_each() -> None:
    every = [f"/data/{number}/{'x' * 300}é\udcff.jpg" for number in range(130)]
    before = count()
    replace([*every[:60], *every[:60], *every])
    assert names() == every[:100]
    assert count() - before == 250


@pytest.mark.parametrize("how", ["closed", "another"])
def test_a_descriptor_that_somebody_closed_is_not_written_to(tmp_path: Path, how: str) -> None:
    replace(["a"])
    descriptor = shared_list.share()
    os.close(descriptor)
    if how == "another":
        other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        os.dup2(other, descriptor)
    replace(["b"])
    assert "b" in names()
    if how == "another":
        assert (tmp_path / "other").read_bytes() == b""
        os.close(other)


def test_without_a_place_for_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise OSError(28, "no space left")

    monkeypatch.setattr(shared_list, "_made", full)
    replace(["a", "b", "a"])
    assert names() == ["a", "b"]
    assert shared_list.sent() is None
    shared_list.join(None)


def test_where_there_is_no_memory_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    replace(["a"])
    assert names() == ["a"]
