"""Large files are read when more than their header is asked for; files of several pictures begin as lazy images."""

import os
import pickle
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from PIL import Image, ImageSequence
from PIL.JpegImagePlugin import JpegImageFile
from PIL.MpoImagePlugin import MpoImageFile
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from accel.codec.header import survey
from tests.support import helpers
from tests.support.helpers import assert_same, is_lazy, outcome
from tests.support.processes import descriptors

LARGE = 1 << 18


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.jpg"
    noise = np.random.default_rng(0).integers(0, 256, (500, 700, 3), np.uint8)
    Image.fromarray(noise).save(path, quality=95, exif=helpers.exif(3), dpi=(72, 75))
    assert path.stat().st_size > LARGE
    return path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of a file asked for, and got."""
    sizes: list[int] = []
    original = os.pread

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        data = original(descriptor, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", pread)
    return sizes


@pytest.mark.parametrize(
    "ask",
    [
        lambda image: (image.size, image.mode, image.format, image.width, image.filename),
        lambda image: image.getexif().get(helpers.ORIENTATION),
        lambda image: image.info,
        lambda image: (image.quantization, image.layers, isinstance(image, JpegImageFile)),
    ],
)
def test_what_the_header_says_takes_the_header(large: Path, read: list[int], ask: Callable[[Any], Any]) -> None:
    def run() -> Any:
        with Image.open(large) as image:
            return ask(image)

    helpers.assert_equal_runs(run)
    assert 0 < sum(read) <= 1 << 16
    before = descriptors(large)
    helpers.assert_equal_runs(run)
    assert descriptors(large) == before


USES: list[Callable[[Any], Any]] = [
    lambda image: image.convert("RGB"),
    lambda image: image.convert("L"),
    lambda image: image.copy(),
    lambda image: image.crop((5, 5, 50, 60)),
    lambda image: image.resize((32, 32)),
    lambda image: image.transpose(0),
    lambda image: F.to_tensor(image),
    lambda image: F.resize(image, [40]),
    lambda image: image.getpixel((3, 4)),
    lambda image: pickle.loads(pickle.dumps(image)),
    lambda image: (image.load(), image)[1],
    lambda image: (image.draft("L", (100, 100)), image.mode, image.size, image.tobytes()),
    lambda image: (image.thumbnail((50, 50)), image)[1],
    lambda image: (image.getexif(), image.quantization, image.tobytes())[1:],
    lambda image: image.tobytes(),
    lambda image: np.asarray(image),
    lambda image: image == image.copy(),
]


@pytest.mark.parametrize(
    ("number", "way"),
    [
        pytest.param(number, way, marks=[] if number % 3 == place else pytest.mark.sweep)
        for number in range(len(USES))
        for place, way in enumerate(("path", "users file", "memory"))
    ],
)
def test_the_rest_is_read_by_whatever_needs_it(large: Path, number: int, way: str) -> None:
    """Each use in one of the ways; the sweep has all pairs."""

    def run() -> Any:
        if way == "path":
            with Image.open(large) as image:
                return USES[number](image)
        if way == "memory":
            return USES[number](Image.open(BytesIO(large.read_bytes())))
        with large.open("rb") as file:
            result = USES[number](Image.open(file))
            assert not file.closed
        return result

    expected, _ = helpers.run("torchvision", run)
    with accel.image_backend("cpu"):
        run()  # the first use compiles: processes are waited for by their pipes
        before = descriptors(large)
        actual = run()
        assert descriptors(large) <= before
    assert_same(actual, expected)


METHODS: dict[str, Callable[[Any], Any]] = {
    "convert": lambda image: image.convert("RGB"),
    "grey": lambda image: image.convert("L"),
    "copy": lambda image: image.copy(),
    "crop": lambda image: image.crop((10, 20, 300, 400)),
    "resize": lambda image: image.resize((64, 48), Image.Resampling.BILINEAR),
    "box": lambda image: image.resize((64, 48), Image.Resampling.BILINEAR, (1.5, 2.5, 600, 401)),
    "reduce": lambda image: image.reduce(3),
    "transpose": lambda image: image.transpose(Image.Transpose.ROTATE_90),
    "extent": lambda image: image.transform((64, 48), Image.Transform.EXTENT, (1, 2, 300.5, 200)),
    "resized_crop": lambda image: F.resized_crop(image, 10, 20, 300, 200, [64, 64]),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("by", ["path", "file"])
def test_what_is_made_of_one_is_lazy(large: Path, name: str, by: str) -> None:
    method = METHODS[name]
    expected = method(Image.open(large))
    with accel.image_backend("cpu"), large.open("rb") as file:
        image = Image.open(large if by == "path" else file)
        made = method(image)
        assert is_lazy(image)
        assert is_lazy(made)
        assert made.tobytes() == expected.tobytes()
        assert image.tobytes() == Image.open(large).tobytes()


def test_an_image_without_a_file_has_no_recipe() -> None:
    with accel.image_backend("cpu"):
        image = helpers.picture(8, 6)
        plain = image.tobytes()
        image.__class__ = accel.LazyImage
        assert not is_lazy(image)
        assert image.tobytes() == plain


def test_the_file_is_closed_when_it_has_been_read(large: Path) -> None:
    before = descriptors(large)
    with accel.image_backend("cpu"):
        images = [Image.open(large) for _ in range(5)]
        assert descriptors(large) == before + 5  # as with Pillow
        for image in images:
            image.load()
            assert is_lazy(image)
        assert descriptors(large) == before
        image = Image.open(large)
        image.close()
        assert descriptors(large) == before
        with pytest.raises(ValueError, match="closed"):
            image.load()


def test_a_large_file_that_becomes_of_another_class(large: Path) -> None:
    class Mine(JpegImageFile):
        pass

    names = []
    for backend in ("torchvision", "cpu"):
        with accel.image_backend(backend):
            image = Image.open(large)
            image.load()
            image.__class__ = Mine
            names.append(set(vars(image)))
    assert not {name for name in names[1] - names[0] if name.startswith("_")}


def test_an_image_that_is_dropped_warns_as_pillows(large: Path) -> None:
    code = """if True:
        import gc, sys, warnings
        from PIL import Image
        import accel
        for backend in ("torchvision", "cpu"):
            accel.set_image_backend(backend)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                image = Image.open(sys.argv[1])
                del image
                gc.collect()
            print(backend, [each.category.__name__ for each in seen])
    """
    lines = helpers.python(code, str(large)).split("\n")
    assert lines[0].split(" ", 1)[1] == lines[1].split(" ", 1)[1] == "['ResourceWarning']"


def test_a_file_that_is_deleted_or_replaced_after_it_was_opened(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "file.jpg"

    def run() -> Any:
        path.write_bytes(large.read_bytes())
        deleted = Image.open(path)
        path.unlink()
        path.write_bytes(large.read_bytes())
        replaced = Image.open(path)
        other = tmp_path / "other.jpg"
        other.write_bytes(helpers.jpeg(40, 30))
        other.replace(path)
        return deleted.convert("RGB"), replaced.convert("RGB"), Image.open(path).convert("RGB")

    helpers.assert_equal_runs(run)


@pytest.mark.parametrize("cut", [0.5, 0.99])
@pytest.mark.parametrize("use", [lambda image: image.load(), lambda image: image.convert("RGB"), F.to_tensor])
def test_a_large_file_that_is_truncated_is_pillows(large: Path, tmp_path: Path, cut: float, use: Any) -> None:
    data = large.read_bytes()
    path = tmp_path / "cut.jpg"
    path.write_bytes(data[: int(len(data) * cut)])
    assert path.stat().st_size > LARGE or cut < 0.9

    def run() -> Any:
        with Image.open(path) as image:
            return image.size, outcome(lambda: use(image))

    helpers.assert_equal_runs(lambda: str(run()))


def test_a_file_that_shrinks_between_opening_and_use(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "shrinks.jpg"

    def run() -> Any:
        path.write_bytes(large.read_bytes())
        with Image.open(path) as image:
            os.truncate(path, 200_000)
            return str(outcome(lambda: image.convert("RGB")))

    helpers.assert_equal_runs(run)


@pytest.mark.parametrize("fill", [b"\xff\x00", b"\xff\xd3", b"\xff", b"\x00\xff"])
def test_markers_of_a_long_scan_are_found_at_once(fill: bytes) -> None:
    """Two million bytes; the survey used to look at each by itself, in a loop that took seconds for some."""
    steps = 0

    class Counted(bytes):
        def __getitem__(self, index: Any) -> Any:
            nonlocal steps
            steps += 1
            return super().__getitem__(index)

        def find(self, *args: Any) -> int:
            nonlocal steps
            steps += 1
            return super().find(*args)

    start = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"
    data = Counted(start + fill * 1_000_000 + b"\xff\xd9")
    assert survey(data, 0, len(data), b"\x01") == (True, True)
    assert steps < 100


def test_the_survey_equals_a_walk_byte_by_byte() -> None:
    def walk(data: bytes, position: int, size: int) -> bool:
        while position + 1 < size:
            marker = data[position + 1]
            if marker == 0xD9:
                return True
            if marker == 0xFF:
                position += 1
            elif marker == 0 or 0xD0 <= marker <= 0xD7:
                position += 2
            elif position + 4 > size:
                return False
            else:
                position += 2 + ((data[position + 2] << 8) | data[position + 3])
            position = data.find(b"\xff", position, size)
            if position < 0:
                return False
        return False

    rng = np.random.default_rng(1)
    for length in range(4, 60):
        for _ in range(60):
            data = b"\xff\xda" + bytes(rng.choice([0, 0xFF, 0xFF, 0xD9, 0xD3, 0xC4, 2, 5], length).astype(np.uint8))
            assert survey(data, 0, len(data), b"\x01")[0] is walk(data, 0, len(data))


def mpo(first: Image.Image, *others: Image.Image, **options: Any) -> bytes:
    stream = BytesIO()
    first.save(stream, "MPO", save_all=True, append_images=list(others), **options)
    return stream.getvalue()


PICTURES = [helpers.picture(64, 48), helpers.picture(40, 56, seed=1)]  # Pillow 11.1 cannot read its third one
FILES = {
    "plain": mpo(*PICTURES, quality=90),
    "exif": mpo(*PICTURES, quality=90, exif=helpers.exif()),
    "progressive": mpo(*PICTURES, quality=90, progressive=True),
    "grey": mpo(PICTURES[0].convert("L"), PICTURES[1].convert("L")),
}


@pytest.mark.parametrize("draft", [None, "L"])
def test_another_picture_of_a_file_has_drafts(draft: str | None) -> None:
    data = mpo(*(helpers.picture(600, 400, seed=seed) for seed in range(2)))

    def thumbnail() -> Any:
        image = Image.open(BytesIO(data))
        image.seek(1)
        drafted = image.draft(draft, (300, 200))
        image.thumbnail((60, 40))
        return drafted, image.mode, image.size, image.tobytes()

    helpers.assert_equal_runs(thumbnail)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_the_first_of_several_pictures_is_lazy(name: str, backend: str) -> None:
    def run() -> Any:
        image = Image.open(BytesIO(FILES[name]))
        assert isinstance(image, MpoImageFile)
        assert image.format == "MPO"
        assert (image.tell(), image.n_frames, image.is_animated) == (0, len(image.mpinfo[0xB002]), True)
        converted = image.convert("RGB")
        lazy.append(is_lazy(image) and is_lazy(converted))
        facts = image.info, converted.info, dict(image.getexif()), image.size, image.get_format_mimetype()
        return facts, torch.stack([F.to_tensor(converted.resize((32, 24)))]), image

    lazy: list[bool] = []
    expected, _ = helpers.run("torchvision", run)
    with accel.image_backend(backend, **({} if backend == "cpu" else {"device": "cpu"})):
        assert_same(run(), expected)
    assert lazy == [False, True]


@pytest.mark.skipif(PIL.__version__ < "12", reason="Pillow 11.1 cannot turn to a picture of another size")
def test_other_pictures_of_a_file_are_pillows() -> None:
    def run() -> Any:
        image: Any = Image.open(BytesIO(FILES["plain"]))
        seen = [image.crop((0, 0, 9, 9))]
        for frame in (1, 1, 0, 1):
            image.seek(frame)
            seen += [image.copy(), image.tell(), image.size, image.convert("L"), image.info, dict(image.getexif())]
        seen.append(str(outcome(lambda: image.seek(2))))
        seen += [image.tell(), [each.size for each in ImageSequence.Iterator(image)]]
        fresh: Any = Image.open(BytesIO(FILES["plain"]))
        fresh.seek(0)
        seen += [fresh.tell(), fresh, pickle.loads(pickle.dumps(fresh))]
        fresh.load()
        fresh.seek(1)
        seen += [fresh.tobytes(), fresh.size, pickle.loads(pickle.dumps(fresh))]
        return seen

    helpers.assert_equal_runs(run)


def test_a_picture_folder_with_several_pictures_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "phone.jpg"
    path.write_bytes(FILES["exif"])

    def run() -> Any:
        image = default_loader(str(path))
        return image, F.to_tensor(image), image.info

    helpers.assert_equal_runs(run, lazy=True)


@pytest.mark.parametrize("damage", ["no second picture", "count", "cut"])
def test_damaged_files_of_several_pictures_are_what_pillow_takes_them_for(damage: str) -> None:
    data = bytearray(FILES["plain"])
    at = data.index(b"MPF\x00")
    if damage == "no second picture":
        data = data[: data.index(b"\xff\xd9", at) + 2]
    elif damage == "count":
        data[at + 8 : at + 40] = b"\x00" * 32
    else:
        data = data[: len(data) // 6]

    def run() -> Any:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            image = outcome(lambda: Image.open(BytesIO(bytes(data))))
            kind = getattr(type(image), "becomes", type(image)).__name__
            facts = str(outcome(lambda: np.asarray(image.convert("RGB")).tolist()))
        return kind, facts, [str(each.message) for each in seen]

    helpers.assert_equal_runs(run)
