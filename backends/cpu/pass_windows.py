"""The window on an axis (``planning.column_fields``), as the positions that a pass takes."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit
def show_window(window: Any, size: Any, begin: Any, step: Any) -> None:
    """Fill ``window``, int32 [n], with the positions ``begin + step * i``; -1 for those outside [0, size)."""
    for i in range(len(window)):
        where = begin + step * i
        window[i] = where if 0 <= where < size else -1
