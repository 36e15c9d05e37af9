"""What this process and its children use: CPU time, memory, cores."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """User and system time so far of this process, of its living descendants and of children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_cpu_of, descendants()))


def _cpu_of(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / _TICK
    return 0.0


def descendants(pid: int | None = None) -> list[int]:
    """The living processes below this one."""
    found = []
    for task in Path(f"/proc/{pid or os.getpid()}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def resident(pid: int) -> int:
    """A process's proportional set size in bytes: what it shares with others counts in part."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


class PeakMemory:
    """The highest memory of this process and its descendants while the block runs, looked at every 20 ms.

    Attributes:
        before: bytes when the block began. highest: the most that was seen.
    """

    def __enter__(self) -> PeakMemory:
        self.before = self.highest = self._now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
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
