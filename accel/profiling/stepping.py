"""The training step as it would be if nobody else wanted a core, and how long it takes where others do.

Of a step some is waiting, for a device or for copies, and some is computing, on one thread or on several. Who computes
beside others has a share of a core, and is so many times *slower*. Threads of a step wait for the last of them, which
no scheduler knows: with several it gets slower by more than the share of each, and as most of them spin while they
wait, their CPU time grows as well. Between computing together only and each for itself, the middle is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from accel.profiling.measured import Batch, Process

_ENOUGH = 4


@dataclass(frozen=True)
class Stepping:
    """What the main process does with a batch until it asks for the next one; nanoseconds."""

    waits: float
    work: float
    """Computing, by the clock, where each of its threads has a core."""
    threads: float
    """That compute, on average."""
    rest: float = 0.0
    """CPU time that the process takes of a batch beside that."""
    spent: float = 0.0
    """All of its CPU time for a batch, as it was measured."""

    def lasts(self, slower: float = 1.0) -> float:
        return self.waits + self.work * math.pow(slower, 2 - 1 / self.threads)

    def cpu(self, slower: float = 1.0) -> float:
        """CPU time that the process takes of a batch."""
        return self.rest + self.threads * self.work * math.pow(slower, 1 - 1 / self.threads)

    def without(self, work: float) -> Stepping:
        """The same without so much work of one thread."""
        left = max(self.work - work, 0.0)
        threads = max((self.threads * self.work - work) / left, 1.0) if left else 1.0
        return replace(self, work=left, threads=threads)


def stepping(
    main: Process | None, chain: Sequence[Batch], all_batches: Sequence[Batch], busy: float, *, alone: bool
) -> Stepping:
    """What steps are that took so long; those of a chain, by what is known of all.

    Args:
        alone: whether what other threads of the process computed in these steps is no part of them.
    """
    cpu = _cpu_in_main(main, all_batches)
    known = [(each.step_cpu_ns, each.step_cpu_of_all_ns or 0) for each in chain if each.step_cpu_ns is not None]
    own, computed = (sum(each) / len(known) for each in zip(*known, strict=True)) if known else (cpu, cpu)
    own = min(own, cpu, busy)
    computed = own if alone else max(min(computed, cpu), own)
    threads = computed / own if own else 1.0
    delayed = (main.delayed_s or 0.0) * 1e9 / _batches(main, all_batches) if main is not None else 0.0
    delayed = min(delayed * computed / max(cpu, 1.0) / threads, busy - own)
    slower = 1 + delayed / max(own, 1.0)
    return Stepping(busy - own - delayed, own / math.pow(slower, 1 - 1 / threads), threads, cpu - computed, cpu)


def _batches(main: Process, batches: Sequence[Batch]) -> float:
    """How many the process was given, of which only the last may be known one by one."""
    images = sum(batch.images for batch in batches)
    return max((main.images or 0) * len(batches) / images if images else 0.0, len(batches), 1)


def _cpu_in_main(main: Process | None, batches: Sequence[Batch]) -> float:
    """CPU time of the main process for a batch, from one to another; else of all, with what is done once."""
    known = [(each.epoch, each.number, each.cpu_ns or 0) for each in batches if each.number and each.cpu_ns]
    pairs = [(one, two) for one, two in pairwise(known) if one[0] == two[0]]
    if (count := sum(two[1] - one[1] for one, two in pairs)) >= _ENOUGH:
        return sum(two[2] - one[2] for one, two in pairs) / count
    return (main.cpu_s or 0.0) * 1e9 / max(len(batches), 1) if main is not None else 0.0
