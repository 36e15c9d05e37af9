"""The driver's own functions, called past torch's runtime: launches without Python, and host memory that is locked."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

_PORTABLE = 1  # for all GPUs


@cache
def _library() -> Any:
    """The driver's; None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1") if sys.platform != "win32" else ctypes.CDLL("nvcuda.dll")
    except OSError:
        return None


@cache
def launcher() -> npt.NDArray[np.uint64] | None:
    """The address of ``cuLaunchKernel``; None: cuda.core is to find its own."""
    try:
        return np.array([ctypes.cast(_library().cuLaunchKernel, ctypes.c_void_p).value], np.uint64)
    except AttributeError:
        return None


def lock(address: int, size: int) -> int:
    """Lock pages of host memory, so that GPUs copy from there by themselves; a context is current.

    Returns the driver's error, 0 for none. (A refusal by the runtime would be taken for that of a later launch.)
    """
    return _called("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_uint(_PORTABLE))


def unlock(address: int) -> int:
    """Undo ``lock``."""
    return _called("cuMemHostUnregister", ctypes.c_void_p(address))


def _called(name: str, *arguments: Any) -> int:
    function = getattr(_library(), name, None)
    return _MISSING if function is None else int(function(*arguments))


_MISSING = 500  # CUDA_ERROR_NOT_FOUND
