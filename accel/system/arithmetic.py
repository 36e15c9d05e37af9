"""Settings that torch's results depend on: the default dtype, and how many threads share a sum.

Lazy values are computed by other threads than those that recorded them, and later, when somebody may have set
something else. Both settings are more than the calling thread's, so neither can be set for a moment; here they
are had for the calling thread alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from accel.system.private_names import private

pytree = private("torch.utils._pytree", "tree_leaves", "tree_map_only")


@contextmanager
def as_recorded(kind: str = "cpu") -> Iterator[None]:
    """Arithmetic on devices of this kind as it is where transforms run, whatever mode whoever asks for values is in."""
    autocast = torch.autocast(kind, enabled=False) if autocasts(kind) else nullcontext()
    with torch.no_grad(), by_default(), own_threads(), autocast:
        yield


def autocasts(kind: str = "cpu") -> bool:
    """Whether torch would compute convolutions and matrix products on such devices in another type now."""
    try:
        return torch.is_autocast_enabled(kind)
    except RuntimeError:  # there is no such thing for these devices
        return False


# -- the default dtype --------------------------------------------------------------------------------------


def is_default() -> bool:
    """Whether torch's default dtype is float32, under which all is computed that accel records."""
    return torch.get_default_dtype() == torch.float32


def by_default() -> AbstractContextManager[object]:
    """torch's arithmetic as it is while the default dtype is float32, whatever it is now."""
    return nullcontext() if is_default() else _Float32()


class _Float32(TorchFunctionMode):
    """Does again, with float32, what took the default dtype: neither a tensor of floats nor an argument had said it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        took_it = isinstance(result, torch.Tensor) and result.dtype == torch.get_default_dtype()
        given = pytree.tree_leaves((args, kwargs))
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        said = any(isinstance(each, (torch.dtype, np.ndarray)) for each in given)
        if not took_it or func in _CASTS or said or any(each.is_floating_point() for each in tensors):
            return result
        if tensors:
            args, kwargs = pytree.tree_map_only(torch.Tensor, _in_float32, (args, kwargs))
            return func(*args, **kwargs)
        return func(*args, **{**kwargs, "dtype": torch.float32})


_CASTS = (torch.Tensor.double, torch.Tensor.half, torch.Tensor.bfloat16)


def _in_float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.bool else tensor.to(torch.float32)


# -- the number of threads ----------------------------------------------------------------------------------


@contextmanager
def own_threads() -> Iterator[None]:
    """Take back what ``use_threads`` sets inside."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        use_threads(before)


def use_threads(number: int) -> None:
    """Have torch's operations that are called by this thread run on so many threads.

    ``torch.set_num_threads`` says so also for threads that are started later. So OpenMP and MKL are told
    themselves; where that is not what torch asks, torch is.
    """
    if torch.get_num_threads() == number:  # by which torch has settled on a number for this thread
        return
    for tell in _libraries():
        tell(number)
    if torch.get_num_threads() != number:
        torch.set_num_threads(number)


@cache
def _libraries() -> tuple[Callable[[int], object], ...]:
    """The functions that torch itself calls for this."""
    found: list[Callable[[int], object]] = []
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        for name in ("omp_set_num_threads", "MKL_Set_Num_Threads_Local"):
            with suppress(OSError, AttributeError):
                function = getattr(ctypes.CDLL(str(path)), name)
                function.argtypes, function.restype = [ctypes.c_int], None
                found.append(function)
    return tuple(found)
