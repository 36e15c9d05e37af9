"""Arrays between guard pages: an access past one of their ends ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Side = Literal["before", "behind"]
SIDES: tuple[Side, Side] = ("before", "behind")
"""Where a guard page touches the array; at its other end there may be some bytes up to the next one."""

_libc = ctypes.CDLL(None, use_errno=True)
_NOTHING = 0  # PROT_NONE


def guarded(shape: tuple[int, ...], dtype: npt.DTypeLike, side: Side, fill: int = 0xA5) -> Array:
    """A C-contiguous array in pages of its own, full of bytes ``fill``; they go when it does."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    page = mmap.PAGESIZE
    pages = -(-size // page) + 2
    memory = mmap.mmap(-1, pages * page)
    everything = np.frombuffer(memory, np.uint8)
    for guard in (0, (pages - 1) * page):
        address = ctypes.c_void_p(everything.ctypes.data + guard)
        if _libc.mprotect(address, ctypes.c_size_t(page), _NOTHING):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = page if side == "before" else (pages - 1) * page - size
    array = everything[start : start + size]
    array[:] = fill
    return array.view(dtype).reshape(shape)


def guarded_copy(array: Array, side: Side) -> Array:
    copy = guarded(array.shape, array.dtype, side)
    copy[...] = array
    return copy
