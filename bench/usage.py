"""Measuring the memory of this process and its children, and pinning them to cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accel.cli.costs import descendants


def resident(pid: int) -> int:
    """A process's proportional set size in bytes, in which shared memory counts in part; 0 if it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


class PeakMemory(threading.Thread):
    """The peak memory of this process and its descendants while the block runs, sampled every 20 ms.

    Attributes:
        before: bytes when the block began. highest: the most bytes seen.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        self.before = self.highest = self._now()

    def __enter__(self) -> PeakMemory:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.02):
            self.look()

    def look(self) -> None:
        """Take a sample."""
        self.highest = max(self.highest, self._now())

    def _now(self) -> int:
        return sum(map(resident, [os.getpid(), *descendants()]))


@contextmanager
def pinned(cores: int) -> Iterator[list[int]]:
    """Pin all threads of this process, and what they start, to the first ``cores`` cores; yield their numbers."""
    before = os.sched_getaffinity(0)
    chosen = sorted(before)[:cores]
    _pin(set(chosen))
    try:
        yield chosen
    finally:
        _pin(before)


def _pin(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)
