"""Time of whole sections, divided among their stages in proportion to what these took where they were told apart.

The number of each stage's calls is taken to be in proportion to the number of sections.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accel.system.timing.clocks import COUNT, FETCH, HISTOGRAM, NS, USER


def divided(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The stages [stages, WIDTH] of ``sums.total()`` [2, stages, WIDTH], with sections divided among them."""
    whole: npt.NDArray[np.int64] = sums[0].copy()
    told = sums[1].copy()
    lump = whole[FETCH] - told[FETCH]
    told_ns, told_count = int(told[FETCH, NS]), int(told[FETCH, COUNT])
    whole[FETCH] = told[FETCH] = 0
    if lump[COUNT] > 0:
        if not told_ns:
            whole[USER] += lump
            return whole
        times = int(lump[NS]) / told_ns
        often = int(lump[COUNT]) / told_count
        more = np.diff(np.rint(told[:, HISTOGRAM:].cumsum(1) * often), prepend=0).astype(np.int64)  # in all as many
        whole[:, HISTOGRAM:] += more
        whole[:, COUNT] += more.sum(1)
        whole[:, NS] += np.rint(told[:, NS] * times).astype(np.int64)
    return whole
