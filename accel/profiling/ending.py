"""The clock of how a loader's workers end, which those that do not stay do after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.utils.data import get_worker_info

from accel.profiling import loading
from accel.system import clocks, measuring
from accel.system.clocks import WAIT


def ended(original: Callable[..., Any]) -> Callable[..., Any]:
    """``_shutdown_workers`` of an iterator: in its last ``next()``, or where a loop is left and the iterator goes."""

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
            if clock.stepping:  # it is no part of the step
                clock.add(WAIT, took)
                clock.inside += took
                clock.cpu_inside += clocks.cpu_ns() - cpu

    return end


REPLACED = (("torch.utils.data.dataloader._MultiProcessingDataLoaderIter._shutdown_workers", ended),)
