"""Equal arguments of different types, as 2 and 2.0 and True and 1, of which torchvision may make different results."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F1
from torchvision.transforms.v2 import functional as F2

import accel
from tests.support.helpers import jpeg

CALLS: dict[str, tuple[Callable[[torch.Tensor, Any], torch.Tensor], list[Any]]] = {
    "v1 brightness": (F1.adjust_brightness, [2, 2.0, 1, True, 1.0, np.float64(2)]),
    "v2 brightness": (F2.adjust_brightness, [2, 2.0, 1, True, 1.0, np.float64(2)]),
    "v1 grey": (F1.rgb_to_grayscale, [3.0, 1.0, True, 3, 1]),
    "v2 grey": (F2.rgb_to_grayscale, [3.0, 1.0, True, 3, 1]),
    "v1 sides": (lambda x, n: F1.pad(x, [n, 2]), [True, 1, np.int64(1)]),
    "v2 sides": (lambda x, n: F2.pad(x, [n, 2]), [True, 1, np.int64(1)]),
    "v1 fill": (lambda x, n: F1.pad(x, 2, fill=n), [np.uint8(2), np.float32(2), 2, 2.0, True]),
    "v2 fill": (lambda x, n: F2.pad(x, 2, fill=n), [np.uint8(2), np.float32(2), 2, 2.0, True]),
    "interpolation": (lambda x, n: F2.resize(x, [9, 11], n), [2, 2.0, 3.0, 3]),
    "lanczos": (
        lambda x, n: F2.resize(x, list(x.shape[1:]), InterpolationMode.LANCZOS, antialias=n),
        [None, False, True],
    ),
}


def result(call: Callable[[torch.Tensor, Any], torch.Tensor], number: Any, backend: str) -> torch.Tensor | type:
    with accel.image_backend(backend):
        try:
            return call(F1.pil_to_tensor(Image.open(io.BytesIO(jpeg(45, 41)))), number) + 0
        except Exception as error:
            return type(error)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_in_any_order(name: str, turned: bool) -> None:
    call, numbers = CALLS[name]
    for number in numbers[::-1] if turned else numbers:
        expected, found = (result(call, number, backend) for backend in ("torchvision", "cpu"))
        if isinstance(expected, torch.Tensor):
            assert isinstance(found, torch.Tensor), (number, found)
            assert torch.equal(found, expected), number
        else:
            assert found is expected, number


def test_the_types_matter() -> None:
    whole, real = (result(F2.adjust_brightness, number, "torchvision") for number in (2, 2.0))
    assert isinstance(whole, torch.Tensor)
    assert isinstance(real, torch.Tensor)
    assert not torch.equal(whole, real)
