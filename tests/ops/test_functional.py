"""accel.functional: torchvision's functions on anything that holds an image."""

import inspect
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, UnidentifiedImageError
from torch.utils._pytree import tree_leaves
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as v1
from torchvision.transforms.v2 import functional as v2

import accel
from accel import functional as F
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops import OPS
from tests.support import helpers
from tests.support.helpers import assert_same, attempt, is_lazy, jpeg, outcome, picture

COLOUR, GREY = jpeg(83, 61), jpeg(57, 44, "L")


def png(mode: str = "RGB") -> bytes:
    stream = BytesIO()
    picture(83, 61, mode).save(stream, "PNG")
    return stream.getvalue()


def opened(data: bytes) -> Image.Image:
    return Image.open(BytesIO(data))


def array(data: bytes) -> Any:
    return np.array(opened(data))


AS_IMAGES: dict[str, tuple[Callable[[Path], Any], bytes]] = {
    "bytes": (lambda path: COLOUR, COLOUR),
    "grey-bytes": (lambda path: GREY, GREY),
    "bytearray": (lambda path: bytearray(COLOUR), COLOUR),
    "memoryview": (lambda path: memoryview(COLOUR), COLOUR),
    "png-bytes": (lambda path: png(), png()),
    "path": (lambda path: path, COLOUR),
    "path-text": (str, COLOUR),
    "pillow": (lambda path: opened(COLOUR), COLOUR),
    "pillow-png": (lambda path: opened(png("L")), png("L")),
    "array": (lambda path: array(COLOUR), COLOUR),
    "grey-array": (lambda path: array(GREY), GREY),
    "array-of-one-channel": (lambda path: array(GREY)[:, :, None], GREY),
    "array-view": (lambda path: np.ascontiguousarray(array(COLOUR)[::-1, ::-1])[::-1, ::-1], COLOUR),
    "encoded-array": (lambda path: np.frombuffer(COLOUR, np.uint8), COLOUR),
    "encoded-tensor": (lambda path: torch.frombuffer(bytearray(COLOUR), dtype=torch.uint8), COLOUR),
}

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "crop": ((3, 4, 30, 25), {}),
    "hflip": ((), {}),
    "vflip": ((), {}),
    "pad": (([3, 4],), {"fill": 9}),
    "resize": (([40, 31],), {"interpolation": InterpolationMode.BICUBIC}),
    "center_crop": (([20, 90],), {}),
    "resized_crop": ((3, 4, 30, 25), {"size": [21, 22]}),
    "five_crop": (([20, 21],), {}),
    "ten_crop": (([20, 21],), {"vertical_flip": True}),
    "to_tensor": ((), {}),
    "pil_to_tensor": ((), {}),
}
ON_TENSORS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    **{name: call for name, call in CALLS.items() if name not in ("to_tensor", "pil_to_tensor")},
    "to_dtype": ((torch.float32,), {"scale": True}),
    "convert_image_dtype": ((torch.float16,), {}),
}


def parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "photo.jpg"
    path.write_bytes(COLOUR)
    return path


@pytest.mark.parametrize("kind", AS_IMAGES)
def test_images(kind: str, path: Path) -> None:
    make, data = AS_IMAGES[kind]

    def made() -> dict[str, Any]:
        return {name: getattr(F, name)(make(path), *args, **kwargs) for name, (args, kwargs) in CALLS.items()}

    expected = {name: getattr(v1, name)(opened(data), *args, **kwargs) for name, (args, kwargs) in CALLS.items()}
    eager = made()
    assert not any(isinstance(part, (LazyTensorBase, accel.LazyImage)) for part in tree_leaves(eager))
    assert_same(eager, expected)
    helpers.assert_equal_runs(made, lazy=True)


@pytest.mark.parametrize("name", ON_TENSORS)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("data", [COLOUR, GREY], ids=["colour", "grey"])
def test_uint8_tensors(data: bytes, interleaved: bool, name: str) -> None:
    tensor = v1.pil_to_tensor(opened(data))
    tensor = tensor if interleaved else tensor.contiguous()
    args, kwargs = ON_TENSORS[name]
    expected = getattr(v1 if name == "convert_image_dtype" else v2, name)(tensor, *args, **kwargs)
    assert_same(getattr(F, name)(tensor, *args, **kwargs), expected)
    expected = tuple(part.clone() for part in parts(expected))
    with accel.image_backend("cpu"):
        found = getattr(F, name)(tensor, *args, **kwargs)
        assert all(is_lazy(part) for part in parts(found))
        tensor.zero_()
    for part, wanted in zip(parts(found), parts(expected), strict=True):
        assert type(wanted) is torch.Tensor
        assert part.equal(wanted)


def test_a_tensor_is_resized_in_torchs_arithmetic() -> None:
    with accel.image_backend("cpu"):
        pillows = F.pil_to_tensor(F.resize(COLOUR, [40, 31]))
        torchs = F.resize(F.pil_to_tensor(COLOUR), [40, 31])
        assert is_lazy(torchs)
        assert not pillows.equal(torchs)


def test_a_pipeline_from_a_path_is_one_program(path: Path) -> None:
    def one(functions: Any, image: Any) -> Any:
        image = functions.hflip(functions.resized_crop(image, 3, 4, 40, 35, [32, 32]))
        return functions.normalize(functions.to_tensor(image), [0.5, 0.4, 0.3], [0.2, 0.3, 0.4])

    expected = torch.stack([one(v1, opened(COLOUR))] * 3)
    with accel.image_backend("cpu"):
        batch = torch.stack([one(F, path), one(F, COLOUR), one(F, array(COLOUR))])
        assert is_lazy(batch)
        assert "decode: " in accel.explain(batch)
    assert_same(batch, expected)


def test_names_and_signatures_are_torchvisions() -> None:
    recorded = {name for name in OPS if hasattr(v2, name)}
    assert recorded | {"decode", "center_crop", "resized_crop", "five_crop", "ten_crop", "rotate"} == set(F.__all__)
    for name in set(F.__all__) - {"decode"}:
        function = getattr(F, name)
        assert inspect.signature(function) == inspect.signature(getattr(v1, name, getattr(v2, name)))
        assert (function.__name__, function.__module__) == (name, "accel.functional")
        assert pickle.loads(pickle.dumps(function)) is function


def test_the_image_may_be_named() -> None:
    with accel.image_backend("cpu"):
        assert_same(F.resize(img=COLOUR, size=[9, 8]), v1.resize(opened(COLOUR), [9, 8]))
        assert F.to_tensor(pic=COLOUR).shape == (3, 61, 83)


def test_decode(path: Path) -> None:
    with accel.image_backend("cpu"):
        for make, data in AS_IMAGES.values():
            image = F.decode(make(path))
            assert is_lazy(image)
            assert_same(image, opened(data))
        assert F.decode(path).format == "JPEG"
        assert_same(F.decode(GREY, "RGB"), opened(GREY).convert("RGB"))
        assert is_lazy(F.decode(GREY, "RGB"))
        assert F.decode(png("RGBA")).mode == "RGBA"
    assert type(F.decode(np.zeros((3, 4, 3), np.uint8))) is Image.Image


def test_what_is_not_recorded_is_torchvisions() -> None:
    alpha, floats = opened(png("RGBA")), torch.rand(3, 20, 30)
    batch = torch.randint(0, 256, (2, 3, 20, 30), dtype=torch.uint8)
    with accel.image_backend("cpu"):
        for image in (alpha, floats, batch):
            expected = v2.resize(image, [10, 11])
            found = F.resize(image, [10, 11])
            assert type(found) is type(expected)
            assert_same(found, expected)
        assert_same(F.normalize(floats, [0.5], [0.5]), v1.normalize(floats, [0.5], [0.5]))


@pytest.mark.parametrize("backend", ["torchvision", "cpu"])
def test_wrong_sources_raise_clear_errors(backend: str, tmp_path: Path) -> None:
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    with accel.image_backend(backend):
        with pytest.raises(FileNotFoundError, match=r"missing\.jpg"):
            F.resize(tmp_path / "missing.jpg", [3, 3])
        with pytest.raises(UnidentifiedImageError, match=r"text\.jpg"):
            F.hflip(str(text))
        with pytest.raises(UnidentifiedImageError):
            F.decode(b"")
        with pytest.raises(OSError, match="truncated"):
            F.to_tensor(png()[:600])
        with pytest.raises(TypeError, match=r"uint8.*got ndarray of shape \[3, 4, 3\] and dtype float64"):
            F.resize(np.zeros((3, 4, 3)), [3, 3])
        with pytest.raises(TypeError, match=r"got ndarray of shape \[3, 4, 5\] and dtype uint8"):
            F.decode(np.zeros((3, 4, 5), np.uint8))
        with pytest.raises(TypeError, match=r"given as bytes, a path.*got int"):
            F.crop(7, 0, 0, 1, 1)
        with pytest.raises(TypeError, match=r"got Tensor of shape \[3, 4, 5\]"):
            F.decode(torch.zeros(3, 4, 5, dtype=torch.uint8))
        with pytest.raises(TypeError):
            F.hflip()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda functions, image: functions.resize(image, [0, 3]),
        lambda functions, image: functions.resize(image, [3], max_size=2),
        lambda functions, image: functions.resize(image),
        lambda functions, image: functions.five_crop(image, [500, 500]),
        lambda functions, image: functions.pad(image, [1, 2, 3]),
        lambda functions, image: functions.pad(image, [1, 2], padding_mode="mirror"),
        lambda functions, image: functions.crop(image, 0, 0, -3, 3),
        lambda functions, image: functions.normalize(image, [0.5], [0.5]),
        lambda functions, image: functions.hflip(image, 3),
    ],
)
def test_wrong_arguments_raise_what_torchvision_raises(wrong: Callable[[Any, Any], Any]) -> None:
    expected = outcome(lambda: wrong(v2, opened(COLOUR)))
    assert isinstance(expected, type)
    with accel.image_backend("cpu"):
        assert outcome(lambda: wrong(F, COLOUR)) is expected


def test_broken_pixels_name_the_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(helpers.undecodable())
    with accel.image_backend("cpu"):
        lazy = F.to_tensor(F.hflip(broken))
        with pytest.raises(accel.DecodeError, match=r"broken\.jpg"):
            lazy.sum()


@pytest.mark.parametrize(
    "call",
    [
        lambda image: v2.resize(image, [20.0, 30.0]),
        lambda image: v2.rgb_to_grayscale(image, True),
        lambda image: v2.crop(image, 3, -20, 5, 10),  # of which torchvision makes more columns than ten
        lambda image: v1.crop(image, -20, 3, 10, 5),
        lambda image: v2.normalize(image, [10**400] * 3, [1.0] * 3),
    ],
)
def test_what_v2_cannot_record_is_left_to_torchvision(call: Callable[[Any], Any]) -> None:
    def result() -> Any:
        return attempt(lambda: call(v2.to_image(opened(COLOUR))))

    helpers.assert_equal_runs(result)


@pytest.mark.parametrize("wrong", [{"data": None}, {"fillcolor": [1, 2, 3]}, {"fillcolor": "no colour"}], ids=str)
def test_wrong_arguments_of_transform_raise_what_pillow_raises(wrong: dict[str, Any]) -> None:
    given = {"size": (20, 30), "method": Image.Transform.AFFINE, "data": (1, 0.1, 2, 0.1, 1, 3), **wrong}
    kind, _ = helpers.assert_equal_runs(lambda: attempt(lambda: opened(COLOUR).transform(**given)))
    assert issubclass(kind, (TypeError, ValueError))
