"""The training step as it would be if nothing else needed the cores, and how long it takes beside others.

A step is partly waiting, for a device or for copies, and partly computing, on one thread or several. A thread that
computes beside others has a share of a core, and is so many times *slower*. Several threads wait for the last of them,
spinning, so the step slows by more than the share of each: the model is the middle between threads that compute only
together and threads that are independent. As real steps differ by more, such a step is ``fixed``, for a bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from accel.profiling.measured import BatchTimes, Process

_ENOUGH = 4
_SEVERAL = 1.2  # threads


@dataclass(frozen=True)
class Stepping:
    """The main process's work on a batch until it asks for the next one; times in nanoseconds."""

    waits: float
    work: float
    """Time of computing, if each of its threads has a core."""
    threads: float
    """The mean number of threads that compute."""
    rest: float = 0.0
    """Other CPU time of the process for a batch."""
    spent: float = 0.0
    """All CPU time of the process for a batch, as measured."""
    waits_alone: float = 0.0
    """The part of ``waits`` that is left if its threads were delayed one after another, while the others waited."""
    alone: float | None = None
    """The time of an epoch's last step, beside which no batches are made; None if not known."""
    varies: bool = True
    """Whether it takes longer if others compute."""

    @property
    def on_several(self) -> bool:
        """Whether it computes on several threads, so that it is not known how much slower it gets beside others."""
        return self.threads > _SEVERAL

    def lasts(self, slower: float = 1.0) -> float:
        return self.waits + self.work * (math.pow(slower, 2 - 1 / self.threads) if self.varies else 1.0)

    def cpu(self, slower: float = 1.0) -> float:
        """CPU time of the process for a batch."""
        return self.rest + self.threads * self.work * (math.pow(slower, 1 - 1 / self.threads) if self.varies else 1.0)

    def fixed(self, busy: float, *, computes: bool) -> Stepping:
        """The step with a fixed time, whatever computes beside it, and with its present CPU time, or none."""
        work = min((self.spent - self.rest) / self.threads, busy) if computes else 0.0
        rest = self.rest if computes else 0.0
        return replace(self, waits=busy - work, work=work, rest=rest, varies=False)

    def at_best(self) -> Stepping:
        """The step if nothing computes beside it: the least time that is certain."""
        if not self.on_several:
            return self
        if self.alone is None:
            return replace(self, waits=self.waits_alone)
        work = min(self.work, self.alone)
        return replace(self, waits=self.alone - work, work=work)

    @property
    def longer(self) -> float:
        """The extra time of one thread beside those that make batches, though it has a core: they share caches and
        memory."""
        if self.alone is None or self.on_several:
            return 0.0
        return min(max(self.lasts() - self.alone, 0.0), self.work / 2)

    def without(self, work: float) -> Stepping:
        """The step without so much work of one thread."""
        left = max(self.work - work, 0.0)
        threads = max((self.threads * self.work - work) / left, 1.0) if left else 1.0
        return replace(self, work=left, threads=threads)


def stepping(
    main: Process | None,
    chain: Sequence[BatchTimes],
    all_batches: Sequence[BatchTimes],
    busy: float,
    *,
    alone: bool,
    length: int | None = None,
) -> Stepping:
    """Model the steps of a chain of batches, which took ``busy`` on average, from the measurements of all batches.

    Args:
        alone: whether to leave out what other threads of the process computed during these steps.
        length: batches of an epoch; None if not known.
    """
    cpu = _cpu_in_main(main, all_batches)
    known = [(each.step_cpu_ns, each.step_cpu_of_all_ns or 0) for each in chain if each.step_cpu_ns is not None]
    own, computed = (sum(each) / len(known) for each in zip(*known, strict=True)) if known else (cpu, cpu)
    own = min(own, cpu, busy)
    computed = own if alone else max(min(computed, cpu), own)
    threads = computed / own if own else 1.0
    delayed = (main.delayed_s or 0.0) * 1e9 / _batches(main, all_batches) if main is not None else 0.0
    late = delayed * computed / max(cpu, 1.0)
    delayed = min(late / threads, busy - own)
    slower = 1 + delayed / max(own, 1.0)
    work = own / math.pow(slower, 1 - 1 / threads)
    waits, waits_alone = busy - own - delayed, max(busy - own - late, 0.0)
    return Stepping(waits, work, threads, cpu - computed, cpu, waits_alone, _last_of_epochs(all_batches, length))


def _last_of_epochs(batches: Sequence[BatchTimes], length: int | None) -> float | None:
    """The median time of the step with an epoch's last batch, if that is a full one; None if not known."""
    full = max((batch.images for batch in batches), default=0)
    last = [batch for batch in batches if batch.number + 1 == length and batch.images == full]
    known = sorted(batch.step_ns + (batch.copy_ns or 0) for batch in last if batch.step_ns is not None)
    return known[len(known) // 2] if known else None


def _batches(main: Process, batches: Sequence[BatchTimes]) -> float:
    """The number of batches that the process was given; ``batches`` may be only the last of them."""
    images = sum(batch.images for batch in batches)
    return max((main.images or 0) * len(batches) / images if images else 0.0, len(batches), 1)


def _cpu_in_main(main: Process | None, batches: Sequence[BatchTimes]) -> float:
    """CPU time of the main process for a batch, between batches of an epoch; with too few of these, of all its time."""
    known = [(each.epoch, each.number, each.cpu_ns or 0) for each in batches if each.number and each.cpu_ns]
    pairs = [(one, two) for one, two in pairwise(known) if one[0] == two[0]]
    if (count := sum(two[1] - one[1] for one, two in pairs)) >= _ENOUGH:
        return sum(two[2] - one[2] for one, two in pairs) / count
    return (main.cpu_s or 0.0) * 1e9 / max(len(batches), 1) if main is not None else 0.0
