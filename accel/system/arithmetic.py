"""Settings that torch's results depend on: the default dtype, and how many threads share a sum.

Lazy values are computed later, and by other threads than those that recorded them, when the settings may have changed.
torch's own setters affect other threads as well, so they cannot be used for a moment; this file changes both settings
for the calling thread alone.
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
_torch = private("torch", "_C._is_any_autocast_enabled")


@contextmanager
def as_recorded(kind: str = "cpu") -> Iterator[None]:
    """Run the block with torch's arithmetic on devices of this kind as transforms have it, whatever the caller set."""
    autocast = torch.autocast(kind, enabled=False) if autocasts(kind) else nullcontext()
    with torch.no_grad(), by_default(), own_threads(), autocast:
        yield


def autocasts(kind: str = "cpu") -> bool:
    """Whether autocast is on for devices of this kind."""
    if kind == "cpu" and not _torch._C._is_any_autocast_enabled():
        return False  # torch takes ten times as long to read the device's name, once a batch
    try:
        return torch.is_autocast_enabled(kind)
    except RuntimeError:  # these devices have no autocast
        return False


# -- the default dtype --------------------------------------------------------------------------------------


def is_default() -> bool:
    """Whether torch's default dtype is float32, which everything that accel records is computed under."""
    return torch.get_default_dtype() == torch.float32


def by_default() -> AbstractContextManager[object]:
    """A context in which torch computes as if the default dtype were float32."""
    return nullcontext() if is_default() else _Float32()


class _Float32(TorchFunctionMode):
    """Repeat, in float32, calls whose result took the default dtype because no argument gave one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        took_it = isinstance(result, torch.Tensor) and result.dtype == torch.get_default_dtype()
        arguments = pytree.tree_leaves((args, kwargs))
        tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
        has_dtype = any(isinstance(each, (torch.dtype, np.ndarray)) for each in arguments)
        if not took_it or func in _CASTS or has_dtype or any(each.is_floating_point() for each in tensors):
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
    """Restore the number of threads that ``use_threads`` changes in the block."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        use_threads(before)


def use_threads(number: int) -> None:
    """Have torch run the operations that this thread calls on so many threads.

    ``torch.set_num_threads`` would also set it for threads that start later. So OpenMP and MKL are set directly, and
    torch only where it does not follow them.
    """
    if torch.get_num_threads() == number:  # the call itself makes torch settle on a number for this thread
        return
    for tell in _libraries():
        tell(number)
    if torch.get_num_threads() != number:
        torch.set_num_threads(number)


@cache
def _libraries() -> tuple[Callable[[int], object], ...]:
    """The functions of OpenMP and MKL that torch itself calls to set the number of threads."""
    found: list[Callable[[int], object]] = []
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        for name in ("omp_set_num_threads", "MKL_Set_Num_Threads_Local"):
            with suppress(OSError, AttributeError):
                function = getattr(ctypes.CDLL(str(path)), name)
                function.argtypes, function.restype = [ctypes.c_int], None
                found.append(function)
    return tuple(found)
