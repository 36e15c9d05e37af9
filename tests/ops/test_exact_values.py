"""Dtypes, casts, batches, normalisation and torch's defaults, after the pixels: the same values bit for bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.exact import COLOUR, EVAL, GREY, MEAN, PICTURES, STD, TRAIN, check, rgb
from tests.support.helpers import assert_equal_runs, assert_same, is_lazy

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_convert_image_dtype(dtype: torch.dtype) -> None:
    for first in (T.ToTensor(), T.PILToTensor()):
        check(T.Compose([T.Resize(20), first, T.ConvertImageDtype(dtype)]), pictures=helpers.pictures())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_to_dtype(dtype: torch.dtype) -> None:
    casts: list[Callable[[torch.Tensor], Any]] = [
        lambda tensor: tensor.to(dtype),
        lambda tensor: tensor.to(dtype=dtype, non_blocking=True),
        lambda tensor: tensor.to("cpu", dtype),
        lambda tensor: tensor.type(dtype),
        lambda tensor: tensor.to(torch.zeros(1, dtype=dtype)),
        lambda tensor: tensor.to(dtype, copy=True),
    ]
    for first in (TRAIN, T.PILToTensor()):
        check(*(T.Compose([first, cast]) for cast in casts), pictures=[COLOUR])


CASTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "half": lambda tensor: tensor.half(),
    "bfloat16": lambda tensor: tensor.bfloat16(),
    "double": lambda tensor: tensor.double(),
    "float": lambda tensor: tensor.half().float(),
    "contiguous": lambda tensor: tensor.contiguous(),
    "clone": lambda tensor: tensor.clone(),
    "to-float16-back": lambda tensor: tensor.to(torch.float16).to(torch.float32),
    "unsqueezed-channels-last": lambda tensor: tensor.unsqueeze(0).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_casts(cast: Callable[[torch.Tensor], Any]) -> None:
    for first in (TRAIN, T.PILToTensor()):
        check(lambda image: cast(first(image)), pictures=helpers.pictures())  # noqa: B023


BATCHES: dict[str, Callable[[torch.Tensor], Any]] = {
    "plain": lambda batch: batch,
    "channels-last": lambda batch: batch.contiguous(memory_format=torch.channels_last),
    "channels-last-half": lambda batch: batch.half().contiguous(memory_format=torch.channels_last),
    "half-of-channels-last": lambda batch: batch.contiguous(memory_format=torch.channels_last).half(),
    "to-channels-last": lambda batch: batch.to(memory_format=torch.channels_last),
    "to-all": lambda batch: batch.to("cpu", torch.bfloat16, memory_format=torch.channels_last),
    "to-back": lambda batch: batch.to(memory_format=torch.channels_last).to(memory_format=torch.contiguous_format),
    "half-format": lambda batch: batch.half(memory_format=torch.channels_last),
    "clone-channels-last": lambda batch: batch.clone(memory_format=torch.channels_last),
    "channels-last-clone": lambda batch: batch.contiguous(memory_format=torch.channels_last).clone(),
    "preserved": lambda batch: batch.to(torch.float64, memory_format=torch.preserve_format),
    "channels-last-3d": lambda batch: helpers.outcome(lambda: batch.contiguous(memory_format=torch.channels_last_3d)),
}


@pytest.mark.parametrize("make", [TRAIN, T.Compose([T.Resize((30, 40)), T.PILToTensor()])], ids=["float", "uint8"])
@pytest.mark.parametrize("use", BATCHES.values(), ids=BATCHES)
def test_batches(use: Callable[[torch.Tensor], Any], make: Callable[[Any], Any]) -> None:
    for collate in (torch.stack, torch.utils.data.default_collate):

        def batch() -> Any:
            return use(collate([make(rgb(picture)) for picture in PICTURES[:7]]))  # noqa: B023

        assert_equal_runs(batch)


NORMALIZATIONS: dict[str, tuple[Any, Any]] = {
    "tuple": (MEAN, STD),
    "list": (list(MEAN), list(STD)),
    "int": ((0, 1, 2), (1, 2, 3)),
    "tensor": (torch.tensor(MEAN), torch.tensor(STD)),
    "double-tensor": (torch.tensor(MEAN, dtype=torch.float64), torch.tensor(STD, dtype=torch.float64)),
    "array": (np.array(MEAN), np.array(STD)),
    "array-float32": (np.array(MEAN, np.float32), np.array(STD, np.float32)),
    "one": ((0.5,), (0.25,)),
    "scalar": (0.5, 0.25),
    "zero-dim-tensor": (torch.tensor(0.5), torch.tensor(0.25)),
    "column": (torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)),
    "array-column": (np.array(MEAN).reshape(3, 1, 1), np.array(STD).reshape(3, 1, 1)),
    "nan": ((float("nan"), 0, float("inf")), (1, float("inf"), 1e-30)),
    "negative": ((-1e10, 3.3, -0.0), (-2.0, 1e-8, 0.1)),
    "numpy-scalars": (tuple(np.float32(value) for value in MEAN), tuple(np.float64(value) for value in STD)),
    "generator-like": (range(3), range(1, 4)),
}


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("numbers", NORMALIZATIONS.values(), ids=NORMALIZATIONS)
def test_normalizations(numbers: tuple[Any, Any], inplace: bool) -> None:
    normalize = T.Normalize(*numbers, inplace=inplace)
    check(T.Compose([T.Resize(20), T.ToTensor(), normalize]), pictures=helpers.pictures()[:3])
    halves = T.Compose([T.ToTensor(), T.ConvertImageDtype(torch.float16), normalize])
    check(halves, T.Compose([T.ToTensor(), normalize, normalize]), pictures=[COLOUR])


def test_inplace_normalization_changes_the_tensor_itself() -> None:
    with accel.image_backend("cpu"):
        lazy = F.to_tensor(rgb(COLOUR))
        before = lazy.clone()
        assert F.normalize(lazy, MEAN, STD, inplace=True) is lazy
        assert is_lazy(lazy)
        untouched = F.normalize(lazy, MEAN, STD)
        assert untouched is not lazy
    expected = F.to_tensor(rgb(COLOUR))
    assert_same(before, expected)
    assert_same(lazy, F.normalize(expected, MEAN, STD))
    assert_same(untouched, F.normalize(F.normalize(expected, MEAN, STD), MEAN, STD))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_default_dtype(dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    for transform in (TRAIN, T.PILToTensor(), T.Compose([T.PILToTensor(), F.convert_image_dtype])):
        check(transform, pictures=helpers.pictures())
    with accel.image_backend("cpu"):
        lazy = T.ToTensor()(rgb(COLOUR))
    torch.set_default_dtype(torch.float32)
    assert lazy.dtype == dtype
    assert lazy.numpy().dtype == np.dtype(str(dtype).removeprefix("torch."))


def test_default_device() -> None:
    """torchvision's tensors of images are on the CPU whatever torch's default device is."""

    def batch() -> Any:
        return torch.stack([EVAL(rgb(COLOUR)), EVAL(rgb(GREY))])

    expected, _ = helpers.run("torchvision", batch)
    with torch.device("meta"), accel.image_backend("cpu"):
        lazy = batch()
        assert lazy.device == torch.device("cpu")
        values = lazy.numpy()
        early = F.to_tensor(rgb(COLOUR).resize((21, 19), Image.Resampling.BOX)).numpy()
    assert np.array_equal(values, expected.numpy())
    assert np.array_equal(early, F.to_tensor(rgb(COLOUR).resize((21, 19), Image.Resampling.BOX)).numpy())


@pytest.mark.parametrize("inplace", [False, True])
def test_erasing_where_no_rectangle_fits(inplace: bool) -> None:
    """RandomErasing then has ``erase`` put the image in the place of itself."""
    transform = T.Compose([TRAIN, T.RandomErasing(1, scale=(1, 1), inplace=inplace)])
    check(transform, pictures=PICTURES)
    with accel.image_backend("cpu"):
        image = TRAIN(rgb(COLOUR))
        erased = F.erase(image, 0, 0, *image.shape[1:], v=image, inplace=inplace)
        assert is_lazy(image)
        assert is_lazy(erased)
        assert (erased is image) == inplace
