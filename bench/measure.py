"""Measuring: every contestant is checked, then all take turns, and each turn is checked again.

A figure stands on two checks. Before the clock runs, a contestant goes through an epoch from start to end, and
every batch is compared with the reference's. While it runs, one batch of every round is kept (which one changes
from round to round) and compared afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import torch

from bench import usage
from bench.contestants.contestant import Contestant, Epoch
from bench.job import Batch, Job
from bench.quality import Different, Quality, check_equal, check_likely


class Red(Exception):
    """A contestant that promises the reference's values has others: there is nothing to report."""


class Cost(NamedTuple):
    """Wall-clock and CPU seconds of an epoch; the latter of this process and of its workers."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Entry:
    """A contestant at its settings in a workload.

    Attributes:
        name: what tables call it; unique in the workload.
        reference: the name of the entry it is compared with; None: it is a reference.
    """

    name: str
    contestant: Contestant
    job: Job
    reference: str | None = None

    @property
    def exact(self) -> bool:
        return self.contestant.exact

    @property
    def comparable(self) -> bool:
        return self.job.pipeline.name not in self.contestant.own_draws


@dataclass
class Result:
    """What came of an entry: rounds, or the reason why there are none."""

    entry: Entry
    rounds: list[Cost] = field(default_factory=list)
    quality: Quality | None = None
    why_not: str | None = None

    @property
    def images(self) -> int:
        """How many images a round has."""
        return len(self.entry.job.order)

    @property
    def seconds(self) -> float:
        """Median wall-clock seconds of one image."""
        return median(cost.seconds for cost in self.rounds) / self.images

    @property
    def cpu_seconds(self) -> float:
        """Median CPU seconds of one image, workers included."""
        return median(cost.cpu_seconds for cost in self.rounds) / self.images


def take_turns(
    entries: Sequence[Entry], rounds: int, on_turn: Callable[[str], None] = lambda text: None
) -> list[Result]:
    """Check and measure.

    Args:
        entries: references before those that are compared with them.
        rounds: epochs of each, in turns: A B C A B C.
        on_turn: called with a few words after each epoch, the check's included.

    Raises:
        Red: an exact contestant's tensors differ from the reference's.
    """
    results = [Result(entry, quality=_quality(entry)) for entry in entries]
    with ExitStack() as stack:
        running = _start(results, stack, on_turn)
        for number in range(1, rounds + 1):
            kept: dict[str, Batch] = {}
            for result, epoch in running:
                cost, batch = _timed(result.entry, epoch, number, _which(result.entry.job, number))
                result.rounds.append(cost)
                if result.entry.reference is None:
                    kept[result.entry.name] = batch
                else:
                    _compare(result, kept[result.entry.reference], batch, _which(result.entry.job, number))
                on_turn(result.entry.name)
    return results


def _start(results: Sequence[Result], stack: ExitStack, on_turn: Callable[[str], None]) -> list[tuple[Result, Epoch]]:
    """Open every entry and check a whole epoch; those that cannot run are told of in their results."""
    running = []
    wanted: dict[str, list[Batch]] = {}
    for result in results:
        entry = result.entry
        result.why_not = entry.contestant.why_not()
        if result.why_not is None and entry.reference is not None and entry.reference not in wanted:
            result.why_not = f"its reference, {entry.reference}, did not run"
        if result.why_not is None:
            torch.set_num_threads(entry.job.threads)
            try:
                epoch = stack.enter_context(entry.contestant.open(entry.job))
                if entry.reference is None:
                    wanted[entry.name] = list(_plain(epoch(0)))
                else:
                    _check(result, wanted[entry.reference], epoch)
                running.append((result, epoch))
            except Red:
                raise
            except Exception as error:  # whatever a library fails with, the others can still be measured
                if entry.exact:
                    raise
                result.why_not = f"{type(error).__name__}: {error}".splitlines()[0]
        on_turn(f"{entry.name}: checked")
    return running


def _check(result: Result, wanted: Sequence[Batch], epoch: Epoch) -> None:
    count = 0
    for number, batch in enumerate(epoch(0)):
        if number < len(wanted):
            _compare(result, wanted[number], batch, number)
        count += 1
    if count != len(wanted):
        raise _error(result.entry, f"{count} batches instead of {len(wanted)}")


def _compare(result: Result, wanted: Batch, found: Batch, number: int) -> None:
    """Compare the epoch's batch of that number."""
    entry = result.entry
    try:
        if entry.exact:
            check_equal(wanted, found, entry.job.names(number))
        elif entry.comparable and result.quality is not None:
            result.quality.add(wanted, found)
        else:
            check_likely(wanted, found)
    except Different as error:
        raise _error(entry, str(error)) from error


def _error(entry: Entry, text: str) -> Exception:
    """What to raise for a difference: the end of the run where the reference's values were promised."""
    text = f"{entry.name} differs from {entry.reference}: {text}"
    return Red(text) if entry.exact else Different(text)


def _timed(entry: Entry, epoch: Epoch, seed: int, which: int) -> tuple[Cost, Batch]:
    """An epoch's cost, and the batch of that number."""
    kept: Batch | None = None
    torch.set_num_threads(entry.job.threads)
    begin, cpu = time.perf_counter(), usage.cpu_seconds()
    for number, batch in enumerate(epoch(seed)):
        if number == which:
            kept = batch
    cost = Cost(time.perf_counter() - begin, usage.cpu_seconds() - cpu)
    assert kept is not None
    return cost, kept


def _which(job: Job, number: int) -> int:
    batches = -(-len(job.order) // job.batch_size)
    return int(torch.randint(batches, (), generator=torch.Generator().manual_seed(number)))


def _quality(entry: Entry) -> Quality | None:
    return Quality(entry.job.pipeline) if entry.comparable else None


def _plain(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Copies, which no loader uses again."""
    for batch in batches:
        yield batch.clone() if isinstance(batch, torch.Tensor) else [image.clone() for image in batch]


def as_data(result: Result, results: Sequence[Result]) -> dict[str, Any]:
    """All figures of an entry, every round's and the medians."""
    entry = result.entry
    found: dict[str, Any] = {
        "contestant": entry.contestant.key,
        "name": entry.name,
        "reference": entry.reference,
        "settings": entry.contestant.settings,
        "threads": entry.job.threads,
        "workers": entry.job.workers,
        "exact": entry.exact,
    }
    if not result.rounds:
        return {**found, "not run": result.why_not}
    spread = sorted(cost.seconds / result.images for cost in result.rounds)
    return {
        **found,
        "images per round": result.images,
        "batch size": entry.job.batch_size,
        "rounds": [cost._asdict() for cost in result.rounds],
        "median ms": 1000 * result.seconds,
        "lowest ms": 1000 * spread[0],
        "highest ms": 1000 * spread[-1],
        "median CPU ms": 1000 * result.cpu_seconds,
        "images per second": 1 / result.seconds,
        "ratio": ratio(result, results),
        "difference in levels": None if result.quality is None else result.quality.as_data(),
    }


def ratio(result: Result, results: Sequence[Result]) -> float | None:
    """How many times as fast as the first entry: the median over the rounds of the ratio within a round."""
    first = results[0]
    if not first.rounds or not result.rounds:
        return None
    per_image = first.images / result.images
    return median(a.seconds / b.seconds for a, b in zip(first.rounds, result.rounds, strict=True)) / per_image
