"""Drawing random parameters as torchvision does, with less work between the draws.

Half of what is left to the host for an image is torchvision's own ``RandomResizedCrop.get_params``, and half of
that the logarithm of a constant. Its code runs as it is, only with a ``torch`` whose ``log(tensor(ratio))``
remembers: the draws, their order and the results are the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torch.utils import _device

from accel.image import LazyImage


def get_params(original: FunctionType) -> Callable[..., Any]:
    """``torchvision.transforms.RandomResizedCrop.get_params`` (img, scale, ratio) -> (top, left, height, width)."""
    quick = _with_remembered_logarithm(original)
    code = original.__code__
    if code not in _alike:
        _alike[code] = _draw_alike(original, quick)
    if not _alike[code]:
        return original

    def get_params(img: Any, scale: Any, ratio: Any) -> Any:
        return (quick if type(img) is LazyImage else original)(img, scale, ratio)

    return get_params


_alike: dict[CodeType, bool] = {}


def _with_remembered_logarithm(function: FunctionType) -> FunctionType:
    namespace = SimpleNamespace()
    namespace.__dict__.update(torch.__dict__, tensor=tuple, log=_logarithms)
    return FunctionType(function.__code__, {**function.__globals__, "torch": namespace}, function.__name__)


def _logarithms(values: tuple[float, ...]) -> tuple[float, ...]:
    return _logarithms_on(_device.CURRENT_DEVICE, values)


@lru_cache(maxsize=64)
def _logarithms_on(default_device: torch.device | None, values: tuple[float, ...]) -> tuple[float, ...]:
    """A device's logarithm is its own, to the last bit."""
    return tuple(torch.log(torch.tensor(values, device=default_device)).tolist())


def _draw_alike(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two versions draw the same and leave the same state, ordinary crops and the last resort alike."""
    generator = random.Random(0)
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        for _ in range(8):
            image = Image.new("L", (generator.randint(1, 600), generator.choice((3, 400))))
            low = generator.uniform(0.01, 1)
            arguments = (image, (low, 1.0), (0.75, generator.uniform(0.8, 3)))
            torch.manual_seed(generator.randint(0, 99))
            expected = one(*arguments), torch.get_rng_state()
            torch.manual_seed(torch.initial_seed())
            try:
                found = other(*arguments), torch.get_rng_state()
            except Exception:
                return False
            if found[0] != expected[0] or not torch.equal(found[1], expected[1]):
                return False
    return True
