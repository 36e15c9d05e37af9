"""The driver's functions, called past torch's runtime: for copies and launches without Python, and locking memory."""

from __future__ import annotations

import ctypes
import sys
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

_PORTABLE = 1  # for all GPUs


@cache
def _library() -> Any:
    """The driver's library; None if there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1") if sys.platform != "win32" else ctypes.CDLL("nvcuda.dll")
    except OSError:
        return None


class Call(IntEnum):
    """Functions that compiled code calls, by their positions in ``functions``."""

    LAUNCH = 0
    TO_DEVICE = 1
    FILL = 2
    TO_HOST = 3


_CALLED = "cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"


@cache
def functions() -> npt.NDArray[np.uint64] | None:
    """The addresses of the functions in ``Call``; None if they are not found, and torch and cuda.core must be used."""
    try:
        found = [ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value for name in _CALLED]
    except AttributeError:
        return None
    return np.array(found, np.uint64)


def lock(address: int, size: int) -> int:
    """Lock pages of host memory, so that GPUs can copy from them by themselves; a context must be current.

    Returns the driver's error, 0 for none. (An error of torch's runtime would be reported by a later launch.)
    """
    return _called("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_uint(_PORTABLE))


def unlock(address: int) -> int:
    """Undo ``lock``."""
    return _called("cuMemHostUnregister", ctypes.c_void_p(address))


def _called(name: str, *arguments: Any) -> int:
    function = getattr(_library(), name, None)
    return _MISSING if function is None else int(function(*arguments))


_MISSING = 500  # CUDA_ERROR_NOT_FOUND
