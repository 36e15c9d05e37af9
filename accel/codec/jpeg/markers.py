"""A search for markers in entropy-coded data (ITU T.81 B.1.1.2, B.1.1.5), without decoding it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_BLOCK = 2048


@njit
def first_marker(data: Any, start: int) -> Any:
    """The code of the first marker from ``start`` on that is no restart marker; 0: there is none."""
    last = len(data) - 1
    while start < last:
        end = min(start + _BLOCK, last)
        here, following = data[start:end], data[start + 1 : end + 1]
        found = np.uint8(0)
        for i in range(len(here)):  # a whole block without branches, so that many bytes are compared at once
            found |= np.uint8(here[i] == 0xFF) & np.uint8(following[i] != 0)
        if found:
            for i in range(len(here)):
                code = following[i]
                if here[i] == 0xFF and code != 0 and code != 0xFF and not 0xD0 <= code <= 0xD7:
                    return np.int64(code)
        start = end
    return 0
