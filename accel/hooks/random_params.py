"""Drawing random parameters as torchvision does, with less work between the draws.

Most of what is left to the host for an image is torchvision's own drawing of parameters, and most of that is
making one-element tensors. Its code runs as it is, only with a ``torch`` whose ``log(tensor(ratio))`` remembers and
whose ``empty(1)``, ``randint`` and ``rand`` use the same tensor again: the draws, their order and the results are
the same, which is checked before it is used.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torchvision.transforms import functional as F

from accel.hooks.patch import Function
from accel.system.private_names import private

_device = private("torch.utils._device", "CURRENT_DEVICE")


def usual() -> bool:
    """Whether tensors are made on the CPU, of a dtype there is a scratch tensor for."""
    return _device.CURRENT_DEVICE is None and torch.get_default_dtype() in _scratch.floats


def with_cheap_tensors(function: FunctionType, **functional: Callable[..., Any]) -> FunctionType:
    """``function`` with cheaper ones of the functions of ``torch``, and these of ``transforms.functional``."""
    cheap = {
        "torch": _like(
            torch, tensor=tuple, log=_logarithms, exp=torch.Tensor.exp_, empty=_empty, randint=_randint, rand=rand
        ),
        "F": _like(F, **functional),
    }
    surroundings = {**function.__globals__, **cheap}
    quick = FunctionType(
        function.__code__, surroundings, function.__name__, function.__defaults__, function.__closure__
    )
    quick.__kwdefaults__ = function.__kwdefaults__
    return quick


def _like(module: ModuleType, **replaced: Callable[..., Any]) -> SimpleNamespace:
    namespace = SimpleNamespace()
    namespace.__dict__.update(vars(module), **replaced)
    return namespace


def _logarithms(values: tuple[float, ...]) -> tuple[float, ...]:
    return _logarithms_of(values, torch.get_default_dtype())


@lru_cache(maxsize=64)
def _logarithms_of(values: tuple[float, ...], dtype: torch.dtype) -> tuple[float, ...]:
    return tuple(torch.log(torch.tensor(values, dtype=dtype, device="cpu")).tolist())


class _Scratch(threading.local):
    """A thread's tensors of one element; what is drawn into one is read before the next draw."""

    def __init__(self) -> None:
        with torch.inference_mode(False):  # else they could not be used outside of it
            self.floats = {dtype: torch.empty(1, dtype=dtype, device="cpu") for dtype in (torch.float32, torch.float64)}
            self.integer = torch.empty(1, dtype=torch.int64, device="cpu")


_scratch = _Scratch()


def _empty(size: int) -> torch.Tensor:
    return _scratch.floats[torch.get_default_dtype()]


def _randint(low: int, high: int, *, size: tuple[int]) -> torch.Tensor:
    return _scratch.integer.random_(low, high)


def rand(size: int) -> _Drawn:
    dtype = torch.get_default_dtype()
    return _Drawn(_scratch.floats[dtype].uniform_().item(), dtype)


class _Drawn:
    """A drawn value, which compares with a number as a tensor of one element does: in the tensor's dtype."""

    __slots__ = ("dtype", "value")

    def __init__(self, value: float, dtype: torch.dtype) -> None:
        self.value = value
        self.dtype = dtype

    def __lt__(self, other: float) -> bool:
        return self.value < _rounded(other, self.dtype)

    def __ge__(self, other: float) -> bool:
        return self.value >= _rounded(other, self.dtype)


@lru_cache(maxsize=64)
def _rounded(value: float, dtype: torch.dtype) -> float:
    return torch.tensor(value, dtype=dtype, device="cpu").item()


# -- the check ----------------------------------------------------------------------------------------------

_alike: dict[CodeType, bool] = {}


def checked(one: FunctionType, other: Function, arguments: Callable[[random.Random], tuple[Any, ...]]) -> bool:
    """Whether two versions return the same from the same draws and leave the generator in the same state."""
    code = one.__code__
    if code not in _alike:
        _alike[code] = _draw_alike(one, other, arguments)
    return _alike[code]


def _draw_alike(
    one: Callable[..., Any], other: Callable[..., Any], arguments: Callable[[random.Random], tuple[Any, ...]]
) -> bool:
    generator = random.Random(0)
    elsewhere = torch.get_default_device().type != "cpu"
    # the context costs more than the draws
    with torch.device("cpu") if elsewhere else nullcontext(), torch.random.fork_rng(devices=[]):
        for _ in range(12):
            given = arguments(generator)
            seed = generator.randint(0, 99)
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the accelerators as well
            expected = one(*given), torch.get_rng_state()
            torch.default_generator.manual_seed(seed)
            try:
                found = other(*given), torch.get_rng_state()
            except Exception:
                return False
            if found[0] != expected[0] or not torch.equal(found[1], expected[1]):
                return False
    return True


def some_crop(generator: random.Random) -> tuple[Any, ...]:
    """Ordinary crops, and images so flat that only the last resort is left."""
    image = Image.new("L", (generator.randint(1, 600), generator.choice((3, 400))))
    return image, (generator.uniform(0.01, 1), 1.0), (0.75, generator.uniform(0.8, 3))
