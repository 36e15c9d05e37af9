"""The memory that this process and its children use, and the cores they are kept on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accel.cli.costs import descendants


def resident(pid: int) -> int:
    """A process's proportional set size in bytes: what it shares with others counts in part."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


class PeakMemory(threading.Thread):
    """The highest memory of this process and its descendants while the block runs, looked at every 20 ms.

    Attributes:
        before: bytes when the block began. highest: the most that was seen.
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
        """Take the memory of this moment into account."""
        self.highest = max(self.highest, self._now())

    def _now(self) -> int:
        return sum(map(resident, [os.getpid(), *descendants()]))


@contextmanager
def pinned(cores: int) -> Iterator[list[int]]:
    """Keep all threads of this process, and what they start, on the first ``cores`` cores; yields their numbers."""
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
