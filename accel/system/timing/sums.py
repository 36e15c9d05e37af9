"""Sums of what the clocks of a process's threads have counted."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from accel.system import fork
from accel.system.timing import clocks
from accel.system.timing.clocks import (
    BUCKETS,
    COUNT,
    CPU_NS,
    CPU_OF_NS,
    DECODE,
    HISTOGRAM,
    KERNELS,
    NS,
    STAGES,
    TOLD,
    WIDTH,
)

_sums = np.zeros((2, len(STAGES), WIDTH), np.int64)
"""Counts of all threads: in all, and the part from sections whose stages were told apart."""
_unadded: list[int] = []
_worked = 0  # threads that have decoded or transformed, and have ended
_MOST_THREADS = 64
_SHIFT, _STAGE = 6, 31


def gathered() -> list[int]:
    """Gather the entries of this process's threads; return those that are not added up yet."""
    global _worked
    with _gathering:
        for each in clocks.threads:
            count = len(each.done)  # its thread may append more at any moment
            if count:
                done = each.done[:count]
                del each.done[:count]
                each.worked = each.worked or any(DECODE <= entry & _STAGE <= KERNELS for entry in done)
                _unadded.extend(done)
        if len(clocks.threads) > _MOST_THREADS:
            alive = {thread.native_id for thread in threading.enumerate()}
            idle = [each for each in clocks.threads if not each.done and not each.plain]
            for ended in [each for each in idle if each.native_id not in alive]:
                clocks.threads.remove(ended)
                _worked += ended.worked
                _add_cpu(ended)
    return _unadded


_gathering = fork.Lock()


def total() -> npt.NDArray[np.int64]:
    """Add up what the threads of this process have counted, int64 [2, stages, WIDTH]: in all, and the part from
    sections whose stages were told apart."""
    unadded = gathered()
    with _gathering:
        count = len(unadded)
        add_up(_sums, np.array(unadded[:count], np.int64))
        del unadded[:count]
        for each in clocks.threads:
            _add_cpu(each)
    return _sums


def write_cpu(written: npt.NDArray[np.int64]) -> None:
    """Update only the CPU times in a copy of ``total()``, given as flat words, if there are new ones."""
    new = [each for each in clocks.threads if each.cpu]
    if new:
        with _gathering:
            for each in new:
                _add_cpu(each)
            written.reshape(_sums.shape)[0, :, [CPU_NS, CPU_OF_NS]] = _sums[0, :, [CPU_NS, CPU_OF_NS]]


def forget() -> None:
    """Reset all sums."""
    global _worked
    _worked = 0
    _sums[:] = 0
    _unadded.clear()


clocks.forgets.append(forget)


def _add_cpu(own: clocks.Clock) -> None:
    for _ in range(len(own.cpu)):
        stage, ns, cpu = own.cpu.pop()
        _sums[0, stage, CPU_NS] += cpu
        _sums[0, stage, CPU_OF_NS] += ns


def working() -> int:
    """The number of threads that have decoded or transformed."""
    return _worked + sum(each.worked for each in clocks.threads)


def add_up(sums: npt.NDArray[np.int64], done: npt.NDArray[np.int64]) -> None:
    """Add entries of stages that have ended (``Clock.done``), int64 [entries], to sums as of ``total()``."""
    if not len(done):
        return
    done = np.concatenate([done, done[done & TOLD != 0] | _SECOND])
    ns = (done & ~_SECOND) >> _SHIFT
    base = ((done & _STAGE) + len(STAGES) * (done & _SECOND != 0)) * WIDTH
    buckets = np.minimum((4 * np.log2(np.maximum(ns, 1)) + 1e-9).astype(np.int64), BUCKETS - 1)
    ones = np.ones_like(ns)
    np.add.at(
        sums.reshape(-1),
        np.concatenate([base + NS, base + COUNT, base + HISTOGRAM + buckets]),
        np.concatenate([ns, ones, ones]),
    )


_SECOND = 1 << 62
