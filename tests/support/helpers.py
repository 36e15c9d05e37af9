"""Helpers of all tests: pictures made with Pillow, random states, comparisons, small datasets."""

import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset, IterableDataset

import accel
from accel.lazy import tensor_base as lazy
from accel.lazy.tensor_base import LazyTensorBase
from tests.support import fresh

ORIENTATION = 0x0112
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# -- pictures -----------------------------------------------------------------------------------------------


def picture(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Smooth colours, a few hard edges and grain: what a photo asks of a codec and a filter."""
    rng = np.random.default_rng([width, height, seed])
    coarse = rng.integers(0, 256, (max(height // 24, 2), max(width // 24, 2), 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    for _ in range(4):
        y, x = rng.integers(0, height), rng.integers(0, width)
        smooth[y : y + height // 5 + 1, x : x + width // 7 + 1] = rng.choice([0, 128, 255], 3)
    grain = rng.integers(-12, 13, (height, width, 1), dtype=np.int16)
    pixels = np.clip(smooth + grain, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


@cache
def jpeg(width: int, height: int, mode: str = "RGB", seed: int = 0, **options: Any) -> bytes:
    """A JPEG file; ``options`` are those of Pillow's ``save`` (quality, subsampling, progressive, exif, ...)."""
    stream = BytesIO()
    picture(width, height, mode, seed).save(stream, "JPEG", **{"quality": 88, **options})
    return stream.getvalue()


def exif(orientation: int = 6) -> bytes:
    tags = Image.Exif()
    tags[ORIENTATION] = orientation
    tags[0x010F] = "accel"
    return tags.tobytes()


def undecodable(width: int = 64, height: int = 48, seed: int = 0) -> bytes:
    """A file whose header is fine and whose pixels nobody can decode: its quantization tables are gone.

    Pillow opens it, and raises when it is asked for pixels.
    """
    data, kept, position = jpeg(width, height, seed=seed), b"\xff\xd8", 2
    while data[position + 1] != 0xDA:
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if data[position + 1] != 0xDB:
            kept += data[position:end]
        position = end
    return kept + data[position:]


class Named(NamedTuple):
    name: str
    data: bytes

    def __repr__(self) -> str:
        return self.name

    def open(self) -> Image.Image:
        return Image.open(BytesIO(self.data))


@cache
def pictures() -> tuple[Named, ...]:
    """Small files of every kind that accel claims."""
    return (
        Named("420", jpeg(200, 150, subsampling=2)),
        Named("422-odd", jpeg(131, 97, subsampling=1)),
        Named("444", jpeg(90, 143, subsampling=0)),
        Named("grey", jpeg(121, 77, "L")),
        Named("progressive", jpeg(160, 111, progressive=True)),
        Named("exif-icc", jpeg(75, 100, exif=exif(), icc_profile=b"profile" * 40)),
        Named("restarts", jpeg(145, 66, restart_marker_blocks=3)),
        Named("one-pixel", jpeg(1, 1)),
        Named("column", jpeg(1, 37)),
        Named("row", jpeg(41, 2, "L")),
    )


# -- randomness and comparisons -----------------------------------------------------------------------------


def seed_everything(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed formats the stack for every kind of device
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the global state is what transforms use


def random_states() -> tuple[Any, ...]:
    """torch's, Python's and NumPy's, comparable with ``==``."""
    numpy_state = np.random.get_state(legacy=True)  # noqa: NPY002
    return (
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in numpy_state),
    )


def run(backend: str, function: Callable[[], Any], seed: int = 0, **options: Any) -> tuple[Any, tuple[Any, ...]]:
    """The result of ``function`` under a backend from a seed, and the random states it leaves."""
    with accel.image_backend(backend, **options):
        seed_everything(seed)
        return function(), random_states()


def assert_same(actual: Any, expected: Any) -> None:
    """Equal bit for bit and alike in type, shape, dtype and memory order, at any depth.

    Strides are those torchvision's result has; of an axis of length 1 they mean nothing and are not compared.
    """
    if isinstance(expected, (tuple, list)):
        assert type(actual) is type(expected)
        assert len(actual) == len(expected)
        for left, right in zip(actual, expected, strict=True):
            assert_same(left, right)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor)
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        for before in (True, False):  # what a lazy tensor states, and what its values then have
            assert _strides(actual) == _strides(expected), f"before the values are used: {before}"
            assert _bits(actual).equal(_bits(expected)), _difference(actual, expected)
    elif isinstance(expected, Image.Image):
        assert isinstance(actual, Image.Image)
        assert (actual.mode, actual.size) == (expected.mode, expected.size)
        assert actual.tobytes() == expected.tobytes()
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype
        assert np.array_equal(actual, expected)
    else:
        assert actual == expected


def _strides(tensor: torch.Tensor) -> list[int]:
    return [stride for stride, length in zip(tensor.stride(), tensor.shape, strict=True) if length > 1]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The values as integers, so that NaN equals NaN and 0 differs from -0."""
    same_size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    values = tensor.detach()  # a lazy tensor becomes them; its clone would be computed by itself
    return torch.clone(values).contiguous().view(same_size[tensor.dtype.itemsize])


def _difference(actual: torch.Tensor, expected: torch.Tensor) -> str:
    wrong = (actual != expected).nonzero()
    return f"{len(wrong)} of {expected.numel()} values differ, the first at {wrong[0].tolist() if len(wrong) else '?'}"


def known(value: Any) -> Any:
    """A value, or a sample of several, in a form that can be compared: kinds, metadata and every bit."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [known(each) for each in value]
    if isinstance(value, dict):
        return {name: known(each) for name, each in value.items()}
    if isinstance(value, Image.Image):
        return "image", value.mode, value.size, value.tobytes()
    if isinstance(value, torch.Tensor):
        kind = value.becomes if isinstance(value, LazyTensorBase) else type(value)
        plain = torch.clone(value).as_subclass(torch.Tensor).detach().contiguous()
        about = kind, getattr(value, "format", None), getattr(value, "canvas_size", None), value.requires_grad
        return *about, plain.dtype, tuple(plain.shape), plain.numpy().tobytes()
    return value


def assert_equal_runs(function: Callable[[], Any], seed: int = 0, lazy: bool = False, **options: Any) -> Any:
    """``function`` gives the same under "cpu" as under "torchvision", random states included; the "cpu" result.

    ``lazy``: all images and tensors of that are.
    """
    expected, states = run("torchvision", function, seed)
    actual, states_after = run("cpu", function, seed, **options)
    assert states_after == states
    if lazy:
        assert all(is_lazy(leaf) for leaf in tree_leaves(actual) if isinstance(leaf, (Image.Image, torch.Tensor)))
    assert_same(actual, expected)
    return actual


def is_lazy(value: Any) -> bool:
    """Whether a tensor or image is accel's and its pixels have not been computed."""
    if isinstance(value, accel.LazyImage):
        return value.recipe is not None
    return isinstance(value, LazyTensorBase) and lazy.is_lazy(value)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result, or the type of its error."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)


def attempt(function: Callable[[], Any]) -> Any:
    """The function's result, or the type and text of its error."""
    try:
        return function()
    except Exception as error:
        return type(error), str(error)


# -- files and datasets -------------------------------------------------------------------------------------


def write_image_folder(root: Path, count: int = 12, broken: dict[int, bytes] | None = None) -> Path:
    """An ImageFolder tree of two classes; files ``broken`` by their number in the dataset's order."""
    for number in range(count):
        folder = root / ("cat" if number < count // 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        mode = "L" if number % 5 == 4 else "RGB"
        data = jpeg(60 + 7 * number, 90 - 3 * number, mode, number, progressive=number % 4 == 3)
        (folder / f"{number:03}.jpg").write_bytes((broken or {}).get(number, data))
    return root


def open_rgb(path: str) -> Image.Image:
    """The loader many scripts have of their own."""
    return Image.open(path).convert("RGB")


def open_closed_rgb(path: str) -> Image.Image:
    """The same, and the file is closed: Pillow leaves that of a broken image open."""
    with Image.open(path) as image:
        return image.convert("RGB")


def open_file_rgb(path: str) -> Image.Image:
    """As ``ImageFolder``'s own."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


class Files(Dataset[Any]):
    """A user's own map-style dataset: transformed images and their numbers."""

    def __init__(self, paths: list[str], transform: Callable[[Image.Image], Any]) -> None:
        self.paths = paths
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.transform(open_rgb(self.paths[index])), index


class Each(Dataset[Any]):
    """What a function makes of each of some things."""

    def __init__(self, things: Sequence[Any], make: Callable[[Any], Any]) -> None:
        self.things = things
        self.make = make

    def __len__(self) -> int:
        return len(self.things)

    def __getitem__(self, index: int) -> Any:
        return self.make(self.things[index])


class Stream(IterableDataset[Any]):
    """A user's own iterable dataset, shared out among the workers."""

    def __init__(self, paths: list[str], transform: Callable[[Image.Image], Any]) -> None:
        self.paths = paths
        self.transform = transform

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for path in self.paths[first::step]:
            yield self.transform(open_rgb(path))


def batches(loader: DataLoader[Any]) -> list[Any]:
    """An epoch. Workers end here even after an exception; torch waits 5 s for each that a garbage collector ends."""
    iterator = iter(loader)
    try:
        return list(iterator)
    finally:
        if loader.num_workers and not loader.persistent_workers:
            iterator._shutdown_workers()  # type: ignore[attr-defined]


# -- other processes ----------------------------------------------------------------------------------------


def python(
    code: str,
    *arguments: str,
    path: Path | None = None,
    timeout: float = 120,
    environment: dict[str, str] | None = None,
) -> str:
    """The output of a fresh interpreter that runs ``code``; ``path`` comes first on its module path.

    One of an ``environment`` of its own imports torch itself; the others are forked from one that has.
    """
    setup = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    if environment is None and sys.platform == "linux":
        process = fresh.Process(setup + code, arguments)
        out, err = process.communicate(timeout)
        assert process.returncode == 0, err
        return out
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", setup + code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def script(path: Path, *arguments: str, folder: Path | None = None, timeout: float = 300) -> str:
    """The output of a file that is run as a program, in a folder."""
    command = [sys.executable, str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def optional(name: str) -> Any:
    """A module of the ecosystem, or the tests of the file are skipped; what it warns of on import is its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def opened(picture: Named) -> tuple[Image.Image, Image.Image]:
    """The same file opened by accel and by Pillow."""
    with accel.image_backend("cpu"):
        lazy = picture.open()
    assert isinstance(lazy, accel.LazyImage)
    return lazy, picture.open()
