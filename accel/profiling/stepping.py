"""The training step as it would be if nobody else wanted a core, and how long it takes where others do.

Of a step some is waiting, for a device or for copies, and some is computing, on one thread or on several. Who computes
beside others has a share of a core, and is so many times *slower*. Threads of a step wait for the last of them, which
no scheduler knows: with several it gets slower by more than the share of each, and as most of them spin while they
wait, their CPU time grows as well. Between computing together only and each for itself, the middle is taken; how it is
differs by more than a prediction may be wrong. What is sure is that a step is no slower where less computes beside it,
and no faster where more does: so it is ``kept``, for a bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from accel.profiling.measured import Batch, Process

_ENOUGH = 4
_SEVERAL = 1.2  # threads


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
    waits_alone: float = 0.0
    """What is left of ``waits`` where its threads were late one after the other: then the others waited for each."""
    alone: float | None = None
    """How long the last step of an epoch takes, beside which nobody makes batches."""
    varies: bool = True
    """Whether it takes longer where others compute."""

    @property
    def on_several(self) -> bool:
        """Whether it computes on several threads: how much slower it gets beside others is not known then."""
        return self.threads > _SEVERAL

    def lasts(self, slower: float = 1.0) -> float:
        return self.waits + self.work * (math.pow(slower, 2 - 1 / self.threads) if self.varies else 1.0)

    def cpu(self, slower: float = 1.0) -> float:
        """CPU time that the process takes of a batch."""
        return self.rest + self.threads * self.work * (math.pow(slower, 1 - 1 / self.threads) if self.varies else 1.0)

    def kept(self, busy: float, *, computes: bool) -> Stepping:
        """The same, taking so long whatever computes beside it; and all of its CPU time as it is, or none."""
        work = min((self.spent - self.rest) / self.threads, busy) if computes else 0.0
        rest = self.rest if computes else 0.0
        return replace(self, waits=busy - work, work=work, rest=rest, varies=False)

    def at_best(self) -> Stepping:
        """The same where nothing computes beside it, as far as it is sure to take that long, on so many threads."""
        if not self.on_several:
            return self
        if self.alone is None:
            return replace(self, waits=self.waits_alone)
        work = min(self.work, self.alone)
        return replace(self, waits=self.alone - work, work=work)

    @property
    def longer(self) -> float:
        """By how much one thread computes longer beside those who make batches, though it has its core: they want the
        same caches, and memory."""
        if self.alone is None or self.on_several:
            return 0.0
        return min(max(self.lasts() - self.alone, 0.0), self.work / 2)

    def without(self, work: float) -> Stepping:
        """The same without so much work of one thread."""
        left = max(self.work - work, 0.0)
        threads = max((self.threads * self.work - work) / left, 1.0) if left else 1.0
        return replace(self, work=left, threads=threads)


def stepping(
    main: Process | None,
    chain: Sequence[Batch],
    all_batches: Sequence[Batch],
    busy: float,
    *,
    alone: bool,
    length: int | None = None,
) -> Stepping:
    """What steps are that took so long; those of a chain, by what is known of all.

    Args:
        alone: whether what other threads of the process computed in these steps is no part of them.
        length: batches of an epoch; None: not known.
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


def _last_of_epochs(batches: Sequence[Batch], length: int | None) -> float | None:
    """How long the step with the last batch of an epoch takes, if that is as large as others."""
    full = max((batch.images for batch in batches), default=0)
    last = [batch for batch in batches if batch.number + 1 == length and batch.images == full]
    known = sorted(batch.step_ns + (batch.copy_ns or 0) for batch in last if batch.step_ns is not None)
    return known[len(known) // 2] if known else None


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
