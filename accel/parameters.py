"""Drawing random parameters as torchvision does, with less work between the draws.

Half of what is left to the host for an image is torchvision's own ``RandomResizedCrop.get_params``, and most of
that is making one-element tensors. Its code runs as it is, only with a ``torch`` whose ``log(tensor(ratio))``
remembers and whose ``empty(1)`` and ``randint`` use the same tensor again: the draws, their order and the results
are the same, which is checked before it is used.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch
from PIL import Image

from accel.image import LazyImage
from accel.seams import private

_device = private("torch.utils._device", "CURRENT_DEVICE")


def get_params(original: FunctionType) -> Callable[..., Any]:
    """``torchvision.transforms.RandomResizedCrop.get_params`` (img, scale, ratio) -> (top, left, height, width)."""
    quick = _with_cheap_tensors(original)
    code = original.__code__
    if code not in _alike:
        _alike[code] = _draw_alike(original, quick)
    if not _alike[code]:
        return original

    def get_params(img: Any, scale: Any, ratio: Any) -> Any:
        usual = _device.CURRENT_DEVICE is None and torch.get_default_dtype() in _scratch.floats
        return (quick if usual and type(img) is LazyImage else original)(img, scale, ratio)

    return get_params


_alike: dict[CodeType, bool] = {}


def _with_cheap_tensors(function: FunctionType) -> FunctionType:
    namespace = SimpleNamespace()
    namespace.__dict__.update(torch.__dict__, tensor=tuple, log=_logarithms, empty=_empty, randint=_randint)
    return FunctionType(function.__code__, {**function.__globals__, "torch": namespace}, function.__name__)


def _logarithms(values: tuple[float, ...]) -> tuple[float, ...]:
    return _logarithms_of(values, torch.get_default_dtype())


@lru_cache(maxsize=64)
def _logarithms_of(values: tuple[float, ...], dtype: torch.dtype) -> tuple[float, ...]:
    return tuple(torch.log(torch.tensor(values, dtype=dtype, device="cpu")).tolist())


class _Scratch(threading.local):
    """A thread's tensors of one element; what is drawn into one is read before the next draw."""

    def __init__(self) -> None:
        self.floats = {dtype: torch.empty(1, dtype=dtype, device="cpu") for dtype in (torch.float32, torch.float64)}
        self.integer = torch.empty(1, dtype=torch.int64, device="cpu")


_scratch = _Scratch()


def _empty(size: int) -> torch.Tensor:
    return _scratch.floats[torch.get_default_dtype()]


def _randint(low: int, high: int, *, size: tuple[int]) -> torch.Tensor:
    return _scratch.integer.random_(low, high)


def _draw_alike(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two versions draw the same and leave the same state, ordinary crops and the last resort alike."""
    generator = random.Random(0)
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        for _ in range(8):
            image = Image.new("L", (generator.randint(1, 600), generator.choice((3, 400))))
            low = generator.uniform(0.01, 1)
            arguments = (image, (low, 1.0), (0.75, generator.uniform(0.8, 3)))
            seed = generator.randint(0, 99)
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators as well
            expected = one(*arguments), torch.get_rng_state()
            torch.default_generator.manual_seed(seed)
            try:
                found = other(*arguments), torch.get_rng_state()
            except Exception:
                return False
            if found[0] != expected[0] or not torch.equal(found[1], expected[1]):
                return False
    return True
