"""Measuring the load by other programs while something runs."""

from __future__ import annotations

import os
import time
from types import TracebackType


class Load:
    """A context that measures ``others``, the cores that other programs kept busy inside; None if not known.

    Processes started inside must have ended when the block does.
    """

    others: float | None = None

    def __enter__(self) -> Load:
        self._begun = _now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        now = _now()
        if self._begun is not None and now is not None:
            clock, own, busy = (after - before for after, before in zip(now, self._begun, strict=True))
            self.others = max(busy - own, 0.0) / clock


def _now() -> tuple[float, float, float] | None:
    """Seconds by the clock; CPU seconds of this process and its ended children; and those of all programs."""
    try:
        with open("/proc/stat") as file:
            ticks = list(map(int, file.readline().split()[1:9]))
    except OSError:
        return None
    own = sum(os.times()[:4])
    return time.perf_counter(), own, (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
