"""Files that are no JPEGs, and bytes without a file, from a cache: all pixels, and all that Pillow says, are theirs."""

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, PngImagePlugin
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.io import decode_image, decode_jpeg, decode_png, decode_webp, read_file, read_image
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.errors import DecodeError
from accel.runtime.memo import cached, result_entries, result_lookup
from accel.system import content
from tests.support import helpers
from tests.support.cached import COUNT, EVALUATION, RESIZED, TRAIN, Counts, check, epoch
from tests.support.cuda import needs_compiler
from tests.support.helpers import Each, assert_same, open_closed_rgb, open_file_rgb, open_rgb
from tests.support.processes import linux

pytestmark = [
    linux,
    pytest.mark.usefixtures("new", "at_once"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed file.*:ResourceWarning"),  # of several pictures: Pillow's own
]
PIPELINES = {"train": TRAIN, "evaluation": EVALUATION, "resized": RESIZED}
_TEXT = PngImagePlugin.PngInfo()
_TEXT.add_text("title", "a picture")


def _file(format: str, mode: str = "RGB", frames: int = 1, **options: Any) -> bytes:
    size, stream = (150 + len(mode), 120 + len(format)), BytesIO()
    pictures = [helpers.picture(*size, "RGB", seed).convert(mode) for seed in range(frames)]
    if mode in ("RGBA", "LA"):
        pictures[0].putalpha(helpers.picture(*size, "L", 9))
    if frames > 1:
        options |= {"save_all": True, "append_images": pictures[1:]}
    pictures[0].save(stream, format, **options)
    return stream.getvalue()


def _of_16_bits() -> bytes:
    stream = BytesIO()
    Image.fromarray(np.arange(150 * 120, dtype=np.uint16).reshape(120, 150) * 3).save(stream, "PNG")
    return stream.getvalue()


def _turned_tiff() -> bytes:
    return _file("TIFF", exif=helpers.exif())


KEPT: dict[str, Callable[[], bytes]] = {
    "png": lambda: _file("PNG", pnginfo=_TEXT),
    "png grey": lambda: _file("PNG", "L"),
    "png palette": lambda: _file("PNG", "P"),
    "png alpha": lambda: _file("PNG", "RGBA"),
    "png grey alpha": lambda: _file("PNG", "LA"),
    "png bits": lambda: _file("PNG", "1"),
    "png exif icc": lambda: _file("PNG", exif=helpers.exif(), icc_profile=b"profile" * 40),
    "png animated": lambda: _file("PNG", frames=3),
    "webp": lambda: _file("WEBP", quality=80, exif=helpers.exif()),
    "webp alpha": lambda: _file("WEBP", "RGBA", lossless=True),
    "webp animated": lambda: _file("WEBP", frames=3),
    "gif": lambda: _file("GIF", "L"),
    "gif animated": lambda: _file("GIF", "RGB", frames=3),
    "bmp": lambda: _file("BMP"),
    "ppm": lambda: _file("PPM"),
    "tiff": lambda: _file("TIFF", compression="tiff_lzw"),
    "tiff turned": _turned_tiff,
    "tiff cmyk": lambda: _file("TIFF", "CMYK"),
}
LEFT: dict[str, Callable[[], bytes]] = {
    "png transparent colour": lambda: _file("PNG", transparency=(1, 2, 3)),
    "png transparent grey": lambda: _file("PNG", "L", transparency=7),
    "jpeg cmyk": lambda: _file("JPEG", "CMYK"),
}
"""What is Pillow's each time."""


@pytest.fixture(scope="module")
def encoded() -> dict[str, bytes]:
    return {name: make() for name, make in (KEPT | LEFT).items()}


@pytest.fixture(autouse=True)
def pays(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Whole pictures are kept however fast their decoder is, until a test says otherwise."""
    change = partial(monkeypatch.setattr, result_entries, "_PAYS")
    change(0.0)
    return change


@pytest.fixture
def folder(tmp_path: Path, encoded: dict[str, bytes]) -> Path:
    for name, data in encoded.items():
        path = tmp_path / "data" / "all" / f"{name}.{name.split()[0]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "data"


@pytest.fixture
def files(folder: Path) -> list[str]:
    return sorted(map(str, folder.rglob("*.*")))


def _of_bytes(path: str) -> Image.Image:
    return Image.open(BytesIO(Path(path).read_bytes())).convert("RGB")


READERS = {"Image.open": open_rgb, "with": open_closed_rgb, "open file": open_file_rgb, "bytes": _of_bytes}


def _put(image: Any) -> None:
    image.putpalette(bytes(range(256)) * 3)


def _dyed(image: Any) -> None:
    image.palette.palette = bytes(len(image.palette.palette))
    image.palette.dirty = 1


@pytest.mark.parametrize("change", [_put, _dyed])
@pytest.mark.parametrize("order", [(True, False, True), (False, True, False)], ids=str)
def test_palettes_that_are_set_on_opened_files(
    files: list[str], place: str, change: Callable[[Any], None], order: tuple[bool, ...]
) -> None:
    """Neither are they lost, nor kept for other uses of the file."""

    def read() -> list[Any]:
        images = []
        for changed in order:
            for path in files:
                image = Image.open(path)
                done = helpers.outcome(change, image) if changed else None
                images += [done, helpers.outcome(lambda: F.hflip(image.convert("RGB")).tobytes())]  # noqa: B023
        return images

    expected = read()
    with accel.image_backend("cpu", cache=place):
        assert_same(read(), expected)


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("reader", ["ImageFolder", *READERS])
def test_every_epoch_is_the_same(
    folder: Path, files: list[str], place: str, opened: list[str], reader: str, pipeline: str
) -> None:
    transform, counts = PIPELINES[pipeline], Counts()
    if reader == "ImageFolder":
        suffixes = tuple({os.path.splitext(path)[1] for path in files})
        dataset: Any = ImageFolder(folder, transform, is_valid_file=lambda path: path.endswith(suffixes))
    else:
        dataset = Each(files, lambda path: transform(READERS[reader](path)))
    for number in range(3):
        expected, states = helpers.run("torchvision", lambda: epoch(dataset, batch_size=len(files)), number)
        opened.clear()
        actual, after = helpers.run("cpu", lambda: epoch(dataset, batch_size=len(files)), number, cache=place)
        assert after == states
        assert_same(actual, expected)
        if number == 2 and reader == "ImageFolder":
            assert not {Path(path).stem for path in opened} & set(KEPT)
    made, known = counts(), [path for path in files if Path(path).stem in KEPT]
    if reader == "bytes":
        known = [path for path in known if os.path.getsize(path) >= content.SMALLEST]
    assert made["results"] >= len(known) > 12
    assert made["results used"] >= len(known)


def test_what_is_decoded_as_fast_as_it_is_read_is_not_kept(
    files: list[str], place: str, pays: Callable[[float], None]
) -> None:
    dataset, counts = Each(files, lambda path: TRAIN(open_rgb(path))), Counts()
    pays(1.0)
    check(dataset, place, 0, batch_size=len(files))
    assert "results" not in counts()
    pays(0.0)
    check(dataset, place, 0, batch_size=len(files))
    assert counts()["results"] >= len(KEPT)


@pytest.mark.parametrize("name", [name for name in KEPT if name in ("png", "png grey", "webp", "bmp", "tiff turned")])
def test_images_that_are_not_converted(files: list[str], place: str, name: str) -> None:
    """Steps on Pillow's own image: it is recorded as it is, not copied."""
    path = next(path for path in files if Path(path).stem == name)
    counts = Counts()
    for transform in (EVALUATION, T.Compose([T.RandomCrop(40), T.ToTensor()]), T.ToTensor(), T.Grayscale()):
        dataset = Each([path] * COUNT, lambda path, transform=transform: transform(Image.open(path)))
        if isinstance(transform, T.Grayscale):
            dataset = Each([path] * COUNT, lambda path: T.ToTensor()(T.Grayscale()(Image.open(path))))
        if "grey" in name and transform is EVALUATION:
            continue  # three means
        for number in range(3):
            check(dataset, place, number)
    assert counts()["results used"]


def _said(path: str, open: Callable[[str], Image.Image]) -> list[Any]:
    image = open(path)
    said = [image.size, image.mode, type(image).__mro__[-2:], image.info, dict(image.getexif())]
    small = T.Resize(20)(open(path))
    return [*said, image.tobytes(), image.info, small.info, small.tobytes(), T.CenterCrop(30)(image).tobytes()]


@pytest.mark.parametrize("reader", READERS)
def test_what_pillow_says_of_them(files: list[str], place: str, reader: str) -> None:
    open = READERS[reader]
    transform = lambda path: EVALUATION(open(path))  # noqa: E731
    expected = helpers.run("torchvision", lambda: [_said(path, open) for path in files])[0]
    for _ in range(3):  # filled after the first
        assert helpers.run("cpu", lambda: [_said(path, open) for path in files], cache=place)[0] == expected
        helpers.run("cpu", lambda: epoch(Each(files, transform)), cache=place)


def _used(path: str) -> list[Any]:
    """Pillow's image itself, used besides what was made of it."""
    image = Image.open(path)
    first = image.convert("RGB")
    said: list[Any] = [first.size, image.mode, image.format, type(image)]
    said += [getattr(image, "n_frames", 1), image.tobytes(), image.info, image.convert("L").tobytes()]
    if getattr(image, "n_frames", 1) > 1:
        image.seek(1)
        said.append(image.convert("RGB").tobytes())
    painted = Image.open(path)
    painted.load()
    painted.paste(0, (3, 3, 40, 40))
    moved = Image.open(path)
    moved.info["icc_profile"] = b"mine"
    return [*said, first.tobytes(), painted.convert("RGB").tobytes(), T.Resize(20)(moved.convert("RGB")).info]


def test_pillows_own_images_stay_what_they_are(files: list[str], place: str) -> None:
    expected = helpers.run("torchvision", lambda: [_used(path) for path in files])[0]
    for _ in range(3):
        helpers.run("cpu", lambda: epoch(Each(files, lambda path: EVALUATION(open_rgb(path)))), cache=place)
        assert helpers.run("cpu", lambda: [_used(path) for path in files], cache=place)[0] == expected


# -- torchvision.io -----------------------------------------------------------------------------------------


def _stream(path: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(Path(path).read_bytes()), dtype=torch.uint8)


TENSORS: dict[str, Callable[[str], torch.Tensor]] = {
    "decode_image": lambda path: decode_image(path, "RGB"),
    "read_image": read_image,
    "decode_image of bytes": lambda path: decode_image(_stream(path), "RGB"),
    "by format": lambda path: (decode_png if path.endswith("png") else decode_webp)(read_file(path)),
}


@pytest.mark.parametrize("reader", TENSORS)
def test_torchvisions_readers(files: list[str], place: str, reader: str) -> None:
    chosen = [path for path in files if Path(path).stem in ("png", "png exif icc", "png animated", "webp")]
    counts, read = Counts(), TENSORS[reader]
    for steps in ([v2.Resize(64), v2.CenterCrop(48)], [v2.RandomCrop(40)], [v2.Resize(64), v2.RandomCrop(48)]):
        run = v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True)])
        for number in range(3):
            check(Each(chosen * 3, lambda path, run=run: run(read(path))), place, number)
    assert counts()["results used"] >= 2 * len(chosen)


def test_what_torchvision_gives_otherwise_is_left_to_it(files: list[str], place: str) -> None:
    """Alpha, grey with alpha, 16 bits, and modes of other channels."""

    def values() -> list[Any]:
        names = {Path(path).stem: path for path in files}
        found = [decode_image(names[name]) for name in ("png alpha", "png grey alpha", "webp alpha", "png grey")]
        found += [decode_image(names["png"], mode) for mode in ("RGB_ALPHA", "GRAY", "UNCHANGED")]
        return [value.clone() for value in found]

    expected = helpers.run("torchvision", values)[0]
    for _ in range(2):
        assert_same(helpers.run("cpu", values, cache=place)[0], expected)


# -- bytes without a file -----------------------------------------------------------------------------------


@pytest.fixture
def jpegs() -> list[bytes]:
    return [helpers.jpeg(160, 120 + 8 * number, seed=number) for number in range(COUNT)]


JPEGS: dict[str, Callable[[bytes], Any]] = {
    "BytesIO": lambda data: Image.open(BytesIO(data)).convert("RGB"),
    "decode_jpeg": lambda data: decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8)),
    "decode_image": lambda data: decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), "RGB"),
}


@pytest.mark.parametrize(
    "pipeline", [[T.RandomResizedCrop(40)], [T.Resize(64), T.CenterCrop(48)]], ids=["train", "eval"]
)
@pytest.mark.parametrize("reader", JPEGS)
def test_jpegs_in_memory(jpegs: list[bytes], place: str, reader: str, pipeline: list[Any]) -> None:
    read, counts = JPEGS[reader], Counts()
    run = T.Compose([*pipeline, *([T.ToTensor()] if reader == "BytesIO" else [T.ConvertImageDtype(torch.float32)])])
    for number in range(3):
        check(Each(jpegs, lambda data: run(read(data))), place, number)
    made = counts()
    assert made.get("results used", 0) + made.get("planes used", 0) >= COUNT


def test_few_bytes_have_no_key(place: str) -> None:
    assert content.key_of_content(bytes(content.SMALLEST - 1)) is None
    assert content.key_of_content(bytes(content.SMALLEST)) is not None


def hash_by(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setattr(content, "_xxhash", module)


def test_without_xxhash(jpegs: list[bytes], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def __getattr__(self, name: str) -> Any:
            raise ImportError("no xxhash")

    hash_by(monkeypatch, Missing())
    monkeypatch.setattr(content, "_missing", False)
    counts = Counts()
    for number in range(2):
        check(Each(jpegs, lambda data: EVALUATION(JPEGS["BytesIO"](data))), place, number)
    assert counts() == {}
    assert any("xxhash is not installed" in reason for reason in accel.stats()["fallbacks"])


# -- what must not be ---------------------------------------------------------------------------------------


def test_a_file_that_changes_after_it_was_opened_is_named(files: list[str], place: str, tmp_path: Path) -> None:
    path = next(path for path in files if path.endswith("png.png"))
    dataset = Each([path] * COUNT, lambda path: EVALUATION(open_rgb(path)))
    helpers.run("cpu", lambda: [epoch(dataset) for _ in range(2)], cache=place)
    load = ImageFolder(Path(path).parent.parent).loader
    for change in ("replaced", "gone"):
        with accel.image_backend("cpu", cache=place):
            image = T.Resize(30)(load(path))
            if change == "gone":
                os.unlink(path)
            else:
                shutil.copy(path, tmp_path / "same")
                os.replace(tmp_path / "same", path)
            with pytest.raises(DecodeError) as raised:
                image.tobytes()
            assert path in str(raised.value)
            helpers.run("cpu", lambda: [epoch(dataset) for _ in range(2)], cache=place) if change != "gone" else None


def test_bytes_that_are_overwritten_after_they_were_opened_are_pillows(place: str) -> None:
    """What was opened is another image than what is there: neither is kept under the other's key."""
    contents = []
    for number in range(COUNT):
        noise = np.random.default_rng(number).integers(0, 256, (90, 70), np.uint8)
        image = Image.fromarray(noise).convert("P")
        image.putpalette(noise.tobytes()[:768])  # what was opened gives its colours, what is there its levels
        image.save(file := BytesIO(), "PNG", compress_level=0)
        contents.append(file.getvalue())

    def overwritten(content: bytes) -> Image.Image:
        file = BytesIO(contents[0])
        image = Image.open(file)
        file.seek(0)
        file.write(content)
        return image.convert("RGB")

    for _ in range(2):
        check(Each(contents, lambda data: EVALUATION(overwritten(data))), place)
    for _ in range(2):
        check(Each(contents, lambda data: EVALUATION(Image.open(BytesIO(data)).convert("RGB"))), place)


def test_damage_is_pillows_to_say(files: list[str], place: str) -> None:
    """A file that is cut short raises what Pillow raises, or is black, and neither is kept."""
    path = next(path for path in files if path.endswith("png.png"))
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: len(data) // 2])
    load = ImageFolder(Path(path).parent.parent, is_valid_file=lambda path: True).loader
    for read in (load, *READERS.values()):
        found = []
        for backend, options in (("torchvision", {}), ("cpu", {"cache": place}), ("cpu", {"cache": place})):
            with accel.image_backend(backend, **options), pytest.raises(OSError) as raised:
                read(path)
            found.append((type(raised.value), str(raised.value).split("<")[0]))
        assert found[0] == found[1] == found[2]
    counts = Counts()
    for read in (load, *READERS.values()):
        for _ in range(2):
            with accel.image_backend("cpu", cache=place, on_error="replace"):
                black = epoch(Each([path] * COUNT, lambda path, read=read: T.ToTensor()(T.Resize(30)(read(path)))))
            assert not black[0].any()
    assert counts() == {}


@pytest.mark.parametrize("wrong", ["content", "decoder", "steps"])
def test_these_tests_notice_wrong_pixels(
    files: list[str], place: str, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """One key for all bytes; one for all decoders; results believed whatever their steps."""
    files = [path for path in files if Path(path).stem == "png"]
    datasets: list[Any] = [Each(files * 12, lambda path: EVALUATION(_of_bytes(path)))]
    if wrong == "content":
        hash_by(monkeypatch, type("Hash", (), {"xxh3_128_intdigest": lambda data: 7}))
        pictures = [_file("BMP"), _file("BMP").translate(bytes(range(255, -1, -1)))]
        pictures[1] = pictures[0][:54] + pictures[1][54:]
        datasets = [Each(pictures * 6, lambda data: EVALUATION(Image.open(BytesIO(data)).convert("RGB")))]
    elif wrong == "decoder":
        monkeypatch.setattr(cached, "place", lambda key, header: key)
        monkeypatch.setattr(result_lookup, "reference_of", lambda header: 0)
        run = v2.Compose([v2.Resize(64), v2.CenterCrop(48), v2.ToDtype(torch.float32, scale=True)])
        datasets = [
            Each(files * 12, lambda path: run(v2.PILToTensor()(open_rgb(path)))),
            Each(files * 12, lambda path: run(decode_image(path, "GRAY"))),
        ]
    else:
        other = T.Compose([T.Resize(50), T.CenterCrop(48), T.ToTensor()])
        monkeypatch.setattr(result_entries.Prefix, "text", lambda prefix, count: b"()")
        monkeypatch.setattr(result_entries, "text", lambda steps: b"()")
        monkeypatch.setattr(result_lookup, "spec_of", result_entries.spec_of.__wrapped__)
        datasets.append(Each(files * 12, lambda path: other(_of_bytes(path))))

    def epochs() -> None:
        for number in range(3):
            for dataset in datasets:
                check(dataset, place, number, batch_size=len(dataset))

    with pytest.raises((AssertionError, DecodeError)):
        epochs()


@needs_compiler
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_an_accelerators_batches(folder: Path, files: list[str], place: str, pipeline: str, workers: int) -> None:
    suffixes = tuple({os.path.splitext(path)[1] for path in files})
    dataset = ImageFolder(folder, PIPELINES[pipeline], is_valid_file=lambda path: path.endswith(suffixes))
    helpers.run("cpu", lambda: epoch(dataset), cache=place)
    options = {"num_workers": workers, "batch_size": len(files)}
    for number in range(2):
        expected, states = helpers.run("torchvision", lambda: epoch(dataset, **options), number)
        actual, after = helpers.run("cuda", lambda: epoch(dataset, **options), number, cache=place, device="cpu")
        assert after == states
        assert_same(actual, expected)


def test_workers_share_it(folder: Path, files: list[str], place: str) -> None:
    suffixes = tuple({os.path.splitext(path)[1] for path in files})
    dataset = ImageFolder(folder, EVALUATION)
    dataset.samples = [(path, 0) for path in files if path.endswith(suffixes)]
    options = {"num_workers": 1, "batch_size": len(files)}
    expected = helpers.run("torchvision", lambda: epoch(dataset, **options))
    counts = Counts()
    for method in ("fork", "fork", "spawn"):
        if method == "spawn":
            time.sleep(2.1)  # to a process that starts anew the files are young
        options["multiprocessing_context"] = method
        assert_same(helpers.run("cpu", lambda: epoch(dataset, **options), cache=place), expected)
        assert method == "fork" or counts()["results used"] >= len(KEPT)
        counts()
