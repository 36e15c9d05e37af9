"""Keys of bytes that come without a file: 127 bits of their content's hash, by xxhash."""

from __future__ import annotations

from typing import Any

from accel.system import counters
from accel.system.imports import LazyModule
from accel.system.memory import Key

_xxhash: Any = LazyModule("xxhash")

SMALLEST = 1 << 12
"""Size in bytes below which a look-up takes about as long as decoding."""

_DEVICE = (1 << 64) - 1  # no file's
_missing = False


def key_of_content(data: Any) -> Key | None:
    """The key of some content, equal to no file's; None: less than ``SMALLEST`` bytes, or (counted) no xxhash."""
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
    return _DEVICE, digest >> 64, size, digest & (1 << 63) - 1, -1  # a time below 0 would be one that is not known
