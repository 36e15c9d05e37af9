"""Measuring libraries beside each other: those that cannot run are told of, the others checked and timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import torch

from accel.cli import costs, harness
from accel.cli.arguments import Red
from accel.cli.costs import Cost
from accel.cli.error_stats import Different, ErrorStats
from accel.cli.harness import Batch
from bench.contestants.contestant import Contestant, Epoch
from bench.job import Job
from bench.pipelines import Pipeline


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
    results = {entry.name: Result(entry, stats=_stats(entry)) for entry in entries}
    running: dict[str, harness.Contestant] = {}
    with ExitStack() as stack:
        for name, result in results.items():
            entry, reference = result.entry, running.get(result.entry.reference or "")
            result.why_not = entry.contestant.why_not()
            if result.why_not is None and entry.reference is not None and reference is None:
                result.why_not = f"its reference, {entry.reference}, did not run"
            if result.why_not is None:
                torch.set_num_threads(entry.job.threads)
                try:
                    epoch = stack.enter_context(entry.contestant.open(entry.job))
                    running[name] = _contestant(result, epoch, reference)
                except Exception as error:  # whatever a library fails with, the others can still be measured
                    if entry.exact:
                        raise
                    result.why_not = f"{type(error).__name__}: {error}".splitlines()[0]
        for name, difference in harness.check(list(running.values())).items():
            if results[name].entry.exact:
                raise Red(difference)
            results[name].why_not = str(difference)
            del running[name]
        for name in results:
            on_turn(f"{name}: checked")
        harness.measure(list(running.values()), rounds, on_turn)
    return list(results.values())


def _contestant(result: Result, epoch: Epoch, reference: harness.Contestant | None) -> harness.Contestant:
    entry = result.entry
    made = contestant(entry.name, entry.contestant, entry.job, epoch, reference)
    made.rounds = result.rounds
    if not entry.exact:
        made.compare = check_likely if result.stats is None else partial(harness.compare, stats=result.stats)
    return made


def contestant(
    name: str, who: Contestant, job: Job, epoch: Epoch, reference: harness.Contestant | None = None
) -> harness.Contestant:
    """An opened contestant in a job, which must have the reference's very values."""
    context = partial(who.in_force, job)
    return harness.Contestant(name, epoch, job.names, reference, context=context, threads=job.threads)


def _stats(entry: Entry) -> ErrorStats | None:
    return ErrorStats(levels(entry.job.pipeline)) if entry.comparable else None


def levels(pipeline: Pipeline) -> torch.Tensor:
    """How many levels of uint8 lie in one unit of a pipeline's values, [3, 1, 1]."""
    if pipeline.std is None:
        return torch.ones(3, 1, 1)
    return torch.tensor(pipeline.std, dtype=torch.float64).view(3, 1, 1) * 255


def check_likely(wanted: Batch, found: Batch, names: Sequence[str] = ("",)) -> None:
    """Check what can be checked where a contestant draws random parameters of its own.

    Raises:
        Different: other shapes or dtypes, values that are not finite, or a mean or spread of the whole batch
            that its random changes cannot explain.
    """
    harness.compare(wanted, found, names, ErrorStats())
    a, b = (torch.cat([image.double().flatten() for image in batch]) for batch in (wanted, found))
    if abs(float(a.mean() - b.mean())) > float(a.std()) or not 0.5 < float(b.std() / a.std()) < 2:
        raise Different(f"mean {b.mean():.3g} and spread {b.std():.3g} instead of {a.mean():.3g} and {a.std():.3g}")


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
        "difference in levels": None if result.stats is None else result.stats.as_data(),
    }


def ratio(result: Result, results: Sequence[Result]) -> float | None:
    """How many times as fast as the first entry: the median over the rounds of the ratio within a round."""
    first = results[0]
    if not first.rounds or not result.rounds:
        return None
    seconds = ([cost.seconds for cost in each.rounds] for each in (result, first))
    return costs.ratio(*seconds) * result.images / first.images
