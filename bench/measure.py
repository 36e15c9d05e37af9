"""Measuring: every contestant is checked, then all take turns, and each turn is checked again.

A figure stands on two checks. Before the clock runs, a contestant goes through an epoch from start to end, and
every batch is compared with the reference's. While it runs, one batch of every round is kept (which one changes
from round to round) and compared afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import torch

from accel.cli import harness
from accel.cli.error_stats import Different, ErrorStats, check_equal, check_kind
from accel.cli.harness import Clock, Cost
from bench.contestants.contestant import Contestant, Epoch
from bench.job import Batch, Job
from bench.pipelines import Pipeline


class Red(Exception):
    """A contestant that promises the reference's values has others: there is nothing to report."""


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
    """The rounds of an entry, or the reason why there are none."""

    entry: Entry
    rounds: list[Cost] = field(default_factory=list)
    stats: ErrorStats | None = None
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
    results = [Result(entry, stats=_stats(entry)) for entry in entries]
    kept: dict[str, Batch] = {}
    with ExitStack() as stack:
        running = _start(results, stack, on_turn)
        turns = {result.entry.name: partial(_turn, result, epoch, kept) for result, epoch in running}
        harness.take_turns(turns, rounds, on_turn)
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
        if entry.exact or result.stats is not None:
            compare(wanted, found, entry.job.names(number), None if entry.exact else result.stats)
        else:
            check_likely(wanted, found)
    except Different as error:
        raise _error(entry, str(error)) from error


def compare(wanted: Batch, found: Batch, names: Sequence[str], stats: ErrorStats | None = None) -> None:
    """Compare batches image by image.

    Args:
        names: of the images.
        stats: takes the differences; None: there must be none.

    Raises:
        Different: they are not equal, or cannot be compared; the message names the image.
    """
    check_kind(list(wanted), list(found))
    for name, a, b in zip(names, wanted, found, strict=True):
        try:
            if stats is None:
                check_equal(a, b)
            else:
                stats.add(a, b, name)
        except Different as error:
            raise Different(f"{name}: {error}") from error


def _error(entry: Entry, text: str) -> Exception:
    """The exception for a difference: the end of the run where the reference's values were promised."""
    text = f"{entry.name} differs from {entry.reference}: {text}"
    return Red(text) if entry.exact else Different(text)


def _turn(result: Result, epoch: Epoch, kept: dict[str, Batch], number: int) -> None:
    """An epoch on the clock; then one of its batches is compared, or kept where the entry is a reference."""
    entry, seed = result.entry, number + 1  # the check's was 0
    which, chosen = _which(entry.job, seed), None
    torch.set_num_threads(entry.job.threads)
    clock = Clock()
    for place, batch in enumerate(epoch(seed)):
        if place == which:
            chosen = batch
    result.rounds.append(clock.cost())
    assert chosen is not None
    if entry.reference is None:
        kept[entry.name] = chosen
    else:
        _compare(result, kept[entry.reference], chosen, which)


def _which(job: Job, seed: int) -> int:
    batches = -(-len(job.order) // job.batch_size)
    return int(torch.randint(batches, (), generator=torch.Generator().manual_seed(seed)))


def _stats(entry: Entry) -> ErrorStats | None:
    return ErrorStats(levels(entry.job.pipeline)) if entry.comparable else None


def levels(pipeline: Pipeline) -> torch.Tensor:
    """How many levels of uint8 lie in one unit of a pipeline's values, [3, 1, 1]."""
    if pipeline.std is None:
        return torch.ones(3, 1, 1)
    return torch.tensor(pipeline.std, dtype=torch.float64).view(3, 1, 1) * 255


def check_likely(wanted: Batch, found: Batch) -> None:
    """Check what can be checked where a contestant draws random parameters of its own.

    Raises:
        Different: other shapes or dtypes, values that are not finite, or a mean or spread of the whole batch
            that its random changes cannot explain.
    """
    check_kind(list(wanted), list(found))
    a, b = (torch.cat([image.double().flatten() for image in batch]) for batch in (wanted, found))
    if not bool(b.isfinite().all()):
        raise Different("there are values that are not finite")
    if abs(float(a.mean() - b.mean())) > float(a.std()) or not 0.5 < float(b.std() / a.std()) < 2:
        raise Different(f"mean {b.mean():.3g} and spread {b.std():.3g} instead of {a.mean():.3g} and {a.std():.3g}")


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
        "difference in levels": None if result.stats is None else differences(result.stats),
    }


def ratio(result: Result, results: Sequence[Result]) -> float | None:
    """How many times as fast as the first entry: the median over the rounds of the ratio within a round."""
    first = results[0]
    if not first.rounds or not result.rounds:
        return None
    seconds = ([cost.seconds for cost in each.rounds] for each in (result, first))
    return harness.ratio(*seconds) * result.images / first.images


def differences(stats: ErrorStats) -> dict[str, float]:
    """Those of a contestant that is not exact, as result files have them."""
    return {"max": round(stats.largest, 2), "mean": round(stats.mean, 4), "share that differs": round(stats.share, 5)}
