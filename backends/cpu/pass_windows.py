"""The window through which one axis of an image is shown (``planning.column_fields``), as a pass takes it."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit
def show_window(window: Any, size: Any, begin: Any, step: Any) -> None:
    """Fill int32 [n] with the positions of ``size`` that are shown from ``begin`` on; -1 outside."""
    for i in range(len(window)):
        where = begin + step * i
        window[i] = where if 0 <= where < size else -1
