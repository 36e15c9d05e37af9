"""The cost of a run in time and CPU time, and turns: all contestants, one after the other, in every round."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

T = TypeVar("T")
K = TypeVar("K")


class Cost(NamedTuple):
    """Wall-clock and CPU seconds; the latter of this process and of all processes that it has started."""

    seconds: float
    cpu_seconds: float


class Clock:
    """A clock that starts when it is made."""

    def __init__(self) -> None:
        self._seconds, self._cpu = time.perf_counter(), cpu_seconds()

    def cost(self) -> Cost:
        """The cost so far."""
        return Cost(time.perf_counter() - self._seconds, cpu_seconds() - self._cpu)


def cpu_seconds() -> float:
    """User and system time so far of this process, its living descendants and its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_cpu_of, descendants()))


def _cpu_of(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def descendants(pid: int | None = None) -> list[int]:
    """The ids of the living descendants of a process, None: of this one."""
    found = []
    for task in Path(f"/proc/{pid or os.getpid()}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def take_turns(
    turns: Mapping[K, Callable[[int], T]], rounds: int, on_turn: Callable[[K], object] = lambda name: None
) -> dict[K, list[T]]:
    """Run all in every round, A B C A B C, so that other load on the machine affects all alike; return their results.

    Args:
        turns: functions by name, called with the number of the round.
        on_turn: called with the name after each turn.
    """
    found: dict[K, list[T]] = {name: [] for name in turns}
    for number in range(rounds):
        for name, turn in turns.items():
            found[name].append(turn(number))
            on_turn(name)
    return found


def ratio(costs: Iterable[float], others: Iterable[float]) -> float:
    """How many times as much the others cost: the median over the rounds of the ratio in a round."""
    return median(b / a for a, b in zip(costs, others, strict=True))
