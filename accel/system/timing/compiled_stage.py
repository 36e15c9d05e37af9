"""A stage inside one call of compiled code for many images, which reads the clock itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import numpy.typing as npt

from accel.system.timing import clocks, measuring

CLOCK: int = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)
"""The id, for libc's ``clock_gettime``, of the clock that ``clocks.now`` reads."""


def compiled_stage(stage: int, rest: int, images: int) -> AbstractContextManager[npt.NDArray[np.int64]]:
    """Count a stage of the compiled calls made in the block, and show it in torch's profiler.

    Yields zeros, int64 [images, 2, 2]: for each image the compiled code writes when the stage began and ended, each as
    seconds and nanoseconds of ``clock_gettime(CLOCK, ...)``; int64 [0, 2, 2] if nobody measures.

    Args:
        rest: the stage that the call is made in. torch's profiler shows both as one range, ``accel::decode+transform``.
    """
    counts = measuring.measuring()
    return _measured(stage, rest, images, counts) if counts or clocks.ranges else _UNMEASURED


_UNMEASURED = nullcontext(np.zeros((0, 2, 2), np.int64))


@contextmanager
def _measured(stage: int, rest: int, images: int, counts: bool) -> Iterator[npt.NDArray[np.int64]]:
    times = np.zeros((images if counts else 0, 2, 2), np.int64)
    shown = clocks.ranges and clocks.ranges(f"accel::{clocks.STAGES[stage]}+{clocks.STAGES[rest]}")
    samples_cpu = counts and clocks.sampling_cpu
    start, cpu_start = clocks.now(), clocks.cpu_ns() if samples_cpu else 0
    with shown or nullcontext():
        yield times
    if counts:
        cpu = clocks.cpu_ns() - cpu_start if samples_cpu else None
        took = clocks.now() - start
        seconds, nanoseconds = times[times[:, 1].any(axis=1)].transpose(2, 0, 1)
        clocks.clock().add_within(stage, seconds * 1_000_000_000 + nanoseconds, took, cpu)
