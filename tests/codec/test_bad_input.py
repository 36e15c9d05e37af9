"""Bad files and bad arguments: torchvision's exceptions where it would raise, DecodeError later, never a hang."""

import random
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from tests.support import helpers, inside
from tests.support.damage import BROKEN, GOOD, PROGRESSIVE, scan_at, sized
from tests.support.helpers import MEAN, STD, assert_same, is_lazy, open_closed_rgb, outcome
from tests.support.loaders import FIXED, epoch
from tests.support.processes import linux


def garbled(data: bytes, seed: int) -> bytes:
    """The file with a few wrong bytes after its scan header."""
    rng, changed, start = random.Random(seed), bytearray(data), scan_at(data)
    for _ in range(rng.randint(1, 6)):
        changed[rng.randrange(start, len(data) - 2)] = rng.randrange(256)
    return bytes(changed)


def wrong_anywhere(data: bytes, seed: int) -> bytes:
    """The file with one wrong byte anywhere."""
    rng, changed = random.Random(seed), bytearray(data)
    changed[rng.randrange(2, len(data))] = rng.randrange(256)
    return bytes(changed)


def later_or_same(actual: Any, expected: Any) -> bool:
    """Whether accel raised what torchvision raised, or a DecodeError for it."""
    if not isinstance(expected, type):
        return False
    return actual is expected or (actual is accel.DecodeError and issubclass(expected, (OSError, SyntaxError)))


def check(path: Path, data: bytes, transform: Callable[[Any], Any] = FIXED) -> Any:
    """The image or error that a file gives, through both ways of opening, is the same with and without accel."""
    path.write_bytes(data)
    for load in (default_loader, open_closed_rgb):

        def run(load: Callable[[str], Any] = load) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow warns of some broken metadata
                return transform(load(str(path))).clone() + 0

        expected, _ = helpers.run("torchvision", lambda: outcome(run))
        actual, _ = helpers.run("cpu", lambda: outcome(run))
        if isinstance(expected, type) or isinstance(actual, type):
            assert later_or_same(actual, expected), (actual, expected)
        else:
            assert_same(actual, expected)
    return expected


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_broken_files(tmp_path: Path, data: bytes) -> None:
    check(tmp_path / "broken.jpg", data)
    check(tmp_path / "broken.jpg", data, T.Compose([T.CenterCrop(11), T.PILToTensor()]))
    check(tmp_path / "broken.jpg", data, T.PILToTensor())


@pytest.mark.parametrize("data", [GOOD, PROGRESSIVE], ids=["baseline", "progressive"])
def test_truncated_anywhere(tmp_path: Path, data: bytes) -> None:
    seen = {
        check(tmp_path / "cut.jpg", data[:end]) for end in [*range(0, len(data), 37), *range(len(data) - 5, len(data))]
    }
    assert {OSError, Image.UnidentifiedImageError} <= {each for each in seen if isinstance(each, type)}


@pytest.mark.parametrize(
    "data", [GOOD, PROGRESSIVE, helpers.jpeg(50, 41, "L")], ids=["baseline", "progressive", "grey"]
)
def test_garbage_in_the_scan(tmp_path: Path, data: bytes, thorough: bool) -> None:
    for seed in range(40 if thorough else 6):
        check(tmp_path / "garbled.jpg", garbled(data, seed))
        check(tmp_path / "garbled.jpg", garbled(data, seed), T.Compose([T.CenterCrop(13), T.PILToTensor()]))


@pytest.mark.parametrize("data", [GOOD, PROGRESSIVE], ids=["baseline", "progressive"])
def test_a_wrong_byte_anywhere(tmp_path: Path, data: bytes, thorough: bool) -> None:
    for seed in range(60 if thorough else 12):
        check(tmp_path / "wrong.jpg", wrong_anywhere(data, seed))


def test_a_wrong_byte_in_the_header(tmp_path: Path, thorough: bool) -> None:
    for seed in range(120 if thorough else 25):
        changed, rng = bytearray(GOOD), random.Random(seed)
        changed[rng.randrange(2, scan_at(GOOD))] ^= 1 << rng.randrange(8)
        check(tmp_path / "wrong.jpg", bytes(changed))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for load in (default_loader, Image.open):
        for path, error in ((tmp_path / "gone.jpg", FileNotFoundError), (tmp_path, IsADirectoryError)):
            for backend in ("torchvision", "cpu"):
                with accel.image_backend(backend), pytest.raises(error) as raised:
                    load(str(path))
                assert raised.value.filename == str(path)


def test_a_file_that_vanishes_after_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "here.jpg"
    path.write_bytes(GOOD)
    with accel.image_backend("cpu"):
        images = [default_loader(str(path)), Image.open(path)]
    path.write_bytes(b"something else")
    path.unlink()
    for image in images:
        assert_same(image, Image.open(BytesIO(GOOD)))


def test_the_message_of_image_open_is_pillows(tmp_path: Path) -> None:
    path = tmp_path / "text.jpg"
    path.write_text("no picture")
    kind, _ = helpers.assert_equal_runs(lambda: helpers.attempt(lambda: Image.open(path)))
    assert kind is Image.UnidentifiedImageError


def test_load_truncated_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for data in (GOOD, PROGRESSIVE):
        for end in (len(data) // 2, len(data) * 3 // 4, len(data) - 2):
            assert isinstance(check(tmp_path / "cut.jpg", data[:end]), torch.Tensor)
    assert check(tmp_path / "broken.jpg", helpers.undecodable()) is not None


def test_decode_error_names_the_file_and_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(helpers.undecodable())
    with pytest.raises(OSError) as plain:
        default_loader(str(path))
    with accel.image_backend("cpu"):
        lazy = F.to_tensor(default_loader(str(path)).resize((9, 9)))
    assert is_lazy(lazy)
    for _ in range(2):  # and again: it stays broken, and usable for messages
        with pytest.raises(accel.DecodeError) as raised:
            lazy.sum()
        assert isinstance(raised.value, OSError)
        assert isinstance(raised.value, accel.AccelError)
        assert str(path) in str(raised.value)
        assert str(plain.value) in str(raised.value)
    assert lazy.shape == (3, 9, 9)
    with accel.image_backend("cpu"), pytest.raises(accel.DecodeError, match=r"broken\.jpg: "):
        default_loader(str(path)).getpixel((0, 0))
    assert type(raised.value)("one string") is not None  # DataLoader rebuilds exceptions so


def test_one_bad_image_leaves_the_others() -> None:
    with accel.image_backend("cpu"):
        tensors = [F.to_tensor(Image.open(BytesIO(data))) for data in (GOOD, helpers.undecodable(), GOOD)]
        batch = torch.stack(tensors)
    with pytest.raises(accel.DecodeError):
        batch.numpy()
    for lazy in (tensors[0], tensors[2]):
        assert_same(lazy, F.to_tensor(Image.open(BytesIO(GOOD))))
    again = torch.stack([F.to_tensor(Image.open(BytesIO(GOOD)))] * 3)
    with accel.image_backend("cpu"):
        assert_same(torch.stack([F.to_tensor(Image.open(BytesIO(GOOD))) for _ in range(3)]), again)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_vanishes_between_epochs(tmp_path: Path, workers: int) -> None:
    root = helpers.write_image_folder(tmp_path)
    dataset = ImageFolder(str(root), FIXED)
    (root / "cat" / "003.jpg").unlink()
    for backend in ("torchvision", "cpu"):
        with accel.image_backend(backend), pytest.raises(FileNotFoundError, match=r"003\.jpg"):
            epoch(dataset, num_workers=workers)


def test_a_broken_file_that_was_replaced_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    inside.forget_messages()
    with accel.image_backend("cpu", on_error="replace"):
        for _ in range(3):
            F.to_tensor(Image.open(BytesIO(helpers.undecodable()))).sum()
    warned = [record for record in caplog.records if "replaced" in record.message and record.levelname == "WARNING"]
    assert len(warned) == 1


def lazy_tensor() -> torch.Tensor:
    return F.to_tensor(Image.open(BytesIO(GOOD)))


ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "resize-none": lambda image: F.resize(image, None),
    "resize-text": lambda image: F.resize(image, "large"),
    "resize-empty": lambda image: F.resize(image, []),
    "resize-three": lambda image: F.resize(image, [1, 2, 3]),
    "resize-max-size": lambda image: F.resize(image, [10, 10], max_size=20),
    "resize-negative": lambda image: F.resize(image, -5),
    "resize-filter": lambda image: F.resize(image, 10, "bilinear"),
    "resize-float": lambda image: F.resize(image, 10.5),
    "pad-text": lambda image: F.pad(image, "wide"),
    "pad-none": lambda image: F.pad(image, None),
    "pad-float": lambda image: F.pad(image, 1.5),
    "pad-floats": lambda image: F.pad(image, (1.5, 2)),
    "pad-mode-type": lambda image: F.pad(image, 1, padding_mode=3),
    "pad-fill-count": lambda image: F.pad(image, 1, fill=(1, 2)),
    "pad-fill-four": lambda image: F.pad(image, 1, fill=(1, 2, 3, 4)),
    "pad-fill-type": lambda image: F.pad(image, 1, fill={}),
    "pad-fill-text": lambda image: F.pad(image, 1, fill=("a", "b", "c")),
    "pad-all-away": lambda image: F.pad(image, -30),
    "crop-negative": lambda image: F.crop(image, 0, 0, -5, 5),
    "center-crop-text": lambda image: F.center_crop(image, "ab"),
    "random-crop-large": lambda image: T.RandomCrop(500)(image),
    "five-crop-large": lambda image: F.five_crop(image, [500, 500]),
    "five-crop-three": lambda image: F.five_crop(image, [5, 5, 5]),
    "to-tensor-type": lambda image: F.to_tensor("image"),
    "pil-to-tensor-type": lambda image: F.pil_to_tensor(np.zeros((3, 3))),
}

TENSOR_ARGUMENTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "all-zero-std": lambda tensor: F.normalize(tensor, [0], [0]),
    "tiny-std": lambda tensor: F.normalize(tensor, MEAN, (0.1, 1e-60, 0.1)),
    "std-length": lambda tensor: F.normalize(tensor, MEAN, (0.1,) * 4),
    "mean-none": lambda tensor: F.normalize(tensor, None, STD),
    "mean-text": lambda tensor: F.normalize(tensor, "abc", STD),
    "mean-texts": lambda tensor: F.normalize(tensor, ("a", "b", "c"), STD),
    "mean-nested": lambda tensor: F.normalize(tensor, [[0.1, 0.2, 0.3]], STD),
    "mean-empty": lambda tensor: F.normalize(tensor, (), ()),
    "not-a-tensor": lambda tensor: F.normalize("tensor", MEAN, STD),
    "uint8": lambda tensor: F.normalize(F.convert_image_dtype(tensor, torch.uint8), MEAN, STD),
    "unsafe": lambda tensor: F.convert_image_dtype(tensor, torch.int64),
    "unsafe-32": lambda tensor: F.convert_image_dtype(tensor, torch.int32),
    "double-unsafe": lambda tensor: F.convert_image_dtype(tensor.double(), torch.int64),
    "dtype-text": lambda tensor: F.convert_image_dtype(tensor, "float32"),
    "convert-type": lambda tensor: F.convert_image_dtype(np.zeros(3), torch.float32),
    "to-tensor": lambda tensor: F.to_tensor(tensor),
    "pil-to-tensor": lambda tensor: F.pil_to_tensor(tensor),
    "five-dims": lambda tensor: F.normalize(tensor[0], MEAN, STD),
}


@pytest.mark.parametrize(
    ("make", "use"),
    [
        *(pytest.param(lambda: Image.open(BytesIO(GOOD)), use, id=name) for name, use in ARGUMENTS.items()),
        *(pytest.param(lazy_tensor, use, id=f"tensor-{name}") for name, use in TENSOR_ARGUMENTS.items()),
    ],
)
def test_bad_arguments(make: Callable[[], Any], use: Callable[[Any], Any]) -> None:
    """Raised when the step is recorded, with torchvision's type and text."""

    def error() -> Any:
        value = make()
        with pytest.raises(Exception) as raised:
            use(value)
        return type(raised.value), str(raised.value).replace("accel.lazy.tensor.LazyTensor", "torch.Tensor")

    helpers.assert_equal_runs(error)


def test_a_refused_step_leaves_the_tensor_as_it_was() -> None:
    with accel.image_backend("cpu"):
        lazy = lazy_tensor()
        with pytest.raises(ValueError, match="std evaluated to zero"):
            F.normalize(lazy, MEAN, (0, 0, 0))
        with pytest.raises(ValueError, match="std evaluated to zero"):
            F.normalize(lazy, MEAN, (0, 0, 0), inplace=True)
    assert_same(lazy, lazy_tensor())


# -- bombs -----------------------------------------------------------------------------------------------------------


BASELINE, LATE_SCANS = helpers.jpeg(64, 48), helpers.jpeg(64, 48, progressive=True)


@pytest.mark.parametrize("limit", [None, 1000, 64 * 48, 64 * 48 - 1, 64 * 24, 64 * 24 - 1, Image.MAX_IMAGE_PIXELS])
@pytest.mark.parametrize("size", [(48, 64), (65_500, 65_500), (65_535, 1), (12_000, 8_000), (14_000, 14_000)])
@pytest.mark.parametrize("data", [BASELINE, LATE_SCANS], ids=["baseline", "progressive"])
def test_bombs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, size: tuple[int, int], limit: int | None
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    (tmp_path / "class").mkdir()
    path = tmp_path / "class" / "bomb.jpg"
    path.write_bytes(sized(data, *size))
    ways: list[Callable[[], Any]] = [
        lambda: Image.open(path).size,
        lambda: Image.open(BytesIO(path.read_bytes())).size,
    ]
    if size == (48, 64) or (limit is not None and size[0] * size[1] > 2 * limit):  # nothing large is decoded
        ways += [lambda: default_loader(str(path)).size, lambda: ImageFolder(str(tmp_path), np.asarray)[0][0].shape]
    for way in ways:
        found = []
        for backend in ("torchvision", "cpu"):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                found.append(
                    (
                        helpers.run(backend, lambda way=way: outcome(way))[0],
                        [str(each.message) for each in warned if each.category is Image.DecompressionBombWarning],
                    )
                )
        assert found[0] == found[1]


@linux
def test_a_bomb_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "bomb.jpg").write_bytes(sized(BASELINE, 65_500, 65_500))
    (tmp_path / "small.jpg").write_bytes(BASELINE)
    code = """
import sys, accel, torch
from PIL import Image
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
accel.set_image_backend("cpu")
default_loader(sys.argv[2])  # what opens files is compiled
before, refused = peak(), 0
for use in (Image.open, default_loader):
    try:
        use(sys.argv[1])
    except Image.DecompressionBombError:
        refused += 1
Image.MAX_IMAGE_PIXELS = None
image = Image.open(sys.argv[1])
assert image.size == (65500, 65500)
lazy = F.to_tensor(image.convert("RGB").crop((0, 0, 500, 500)).resize((10, 10)))
assert lazy.shape == (3, 10, 10)
print(refused, peak() - before)
"""
    refused, kilobytes = helpers.python(code, str(tmp_path / "bomb.jpg"), str(tmp_path / "small.jpg")).split()
    assert refused == "2"
    assert int(kilobytes) < 30_000
