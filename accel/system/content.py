"""Keys of bytes that come without a file: 128 bits of their content's hash, by xxhash."""

from __future__ import annotations

from typing import Any

from accel.system import counters
from accel.system.imports import LazyModule
from accel.system.memory import Key

_xxhash: Any = LazyModule("xxhash")

SMALLEST = 1 << 12
"""Bytes of a file below which a look-up takes about as long as decoding it."""

_DEVICE, _HALF = (1 << 64) - 1, 1 << 63  # no file's
_missing = False


def key_of_content(data: Any) -> Key | None:
    """A key that no file has, and no other content; None for few bytes, or without xxhash, which is counted."""
    global _missing
    size = memoryview(data).nbytes
    if size < SMALLEST or _missing:
        return None
    try:
        digest: int = _xxhash.xxh3_128_intdigest(data)
    except ImportError:
        _missing = True
        counters.fallback("nothing is kept of images in memory: xxhash is not installed (pip install xxhash)")
        return None
    return _DEVICE, digest >> 64, size, (digest & (2 * _HALF - 1)) - _HALF, -1
