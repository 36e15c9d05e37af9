"""The clock of ending a loader's workers, which end after every epoch unless they are persistent."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.utils.data import get_worker_info

from accel.profiling import loading
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import WAIT


def ended(original: Callable[..., Any]) -> Callable[..., Any]:
    """Time ``_shutdown_workers`` of an iterator, called in its last ``next()``, or as it is deleted."""

    @wraps(original)
    def end(self: Any) -> Any:
        if get_worker_info() is not None or not measuring.measuring() or self._shutdown:
            return original(self)
        clock, begun, cpu = clocks.clock(), clocks.now(), clocks.cpu_ns()
        try:
            return original(self)
        finally:
            took = clocks.now() - begun
            loading.watched.ended(self, took)
            if clock.stepping:  # not counted as a part of the step
                clock.add(WAIT, took)
                clock.inside += took
                clock.cpu_inside += clocks.cpu_ns() - cpu

    return end


REPLACED = (("torch.utils.data.dataloader._MultiProcessingDataLoaderIter._shutdown_workers", ended),)
