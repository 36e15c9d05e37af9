"""Measuring libraries beside each other: those that cannot run are told of, the others checked and timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from types import MappingProxyType
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


@dataclass(eq=False)
class Entry:
    """A contestant at its settings in a workload; its rounds, or the reason why there are none.

    Attributes:
        name: what tables call it; unique in the workload.
        reference: the name of the entry it is compared with; None: it is a reference.
        stats: differences from the reference; None where they cannot be told.
    """

    name: str
    contestant: Contestant
    job: Job
    reference: str | None = None
    rounds: list[Cost] = field(default_factory=list)
    stats: ErrorStats | None = None
    why_not: str | None = None

    def __post_init__(self) -> None:
        if self.job.pipeline.name not in self.contestant.own_draws:
            self.stats = ErrorStats(levels(self.job.pipeline))

    @property
    def images(self) -> int:
        """How many images a round has."""
        return len(self.job.order)

    @property
    def seconds(self) -> float:
        """Median wall-clock seconds of one image."""
        return median(cost.seconds for cost in self.rounds) / self.images

    @property
    def cpu_seconds(self) -> float:
        """Median CPU seconds of one image, workers included."""
        return median(cost.cpu_seconds for cost in self.rounds) / self.images


def take_turns(
    entries: Sequence[Entry],
    rounds: int,
    on_turn: Callable[[str], None] = lambda text: None,
    beside: Mapping[str, Callable[[int], Any]] = MappingProxyType({}),
) -> None:
    """Check and measure.

    Args:
        entries: references before those that are compared with them; they take the rounds.
        rounds: epochs of each, in turns: A B C A B C.
        on_turn: called with a few words after each epoch, the check's included.
        beside: others' turns, in front of theirs.

    Raises:
        Red: an exact contestant's tensors differ from the reference's.
    """
    named = {entry.name: entry for entry in entries}
    running: dict[str, harness.Contestant] = {}
    with ExitStack() as stack:
        for entry in entries:
            reference = running.get(entry.reference or "")
            entry.why_not = entry.contestant.why_not()
            if entry.why_not is None and entry.reference is not None and reference is None:
                entry.why_not = f"its reference, {entry.reference}, did not run"
            if entry.why_not is None:
                try:
                    epoch = stack.enter_context(entry.contestant.open(entry.job))
                except Exception as error:  # whatever a library fails with, the others can still be measured
                    if entry.contestant.exact:
                        raise
                    entry.why_not = f"{type(error).__name__}: {error}".splitlines()[0]
                    continue
                made = contestant(entry.name, entry.contestant, entry.job, epoch, reference)
                made.rounds = entry.rounds
                if not entry.contestant.exact:
                    made.compare = check_likely if entry.stats is None else partial(harness.compare, stats=entry.stats)
                running[entry.name] = made
        for name, difference in harness.check(list(running.values())).items():
            if named[name].contestant.exact:
                raise Red(difference)
            named[name].why_not = str(difference)
            del running[name]
        for name in named:
            on_turn(f"{name}: checked")
        harness.measure(list(running.values()), rounds, on_turn, beside)


def contestant(
    name: str, who: Contestant, job: Job, epoch: Epoch, reference: harness.Contestant | None = None
) -> harness.Contestant:
    """An opened contestant in a job, which must have the reference's very values."""
    context = partial(who.in_force, job)
    return harness.Contestant(name, epoch, job.names, reference, context=context, threads=job.threads)


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


def as_data(entry: Entry, first: Entry) -> dict[str, Any]:
    """All figures of an entry, every round's and the medians; how many times as fast as the first it is."""
    found: dict[str, Any] = {
        "contestant": entry.contestant.key,
        "name": entry.name,
        "reference": entry.reference,
        "settings": entry.contestant.settings,
        "threads": entry.job.threads,
        "workers": entry.job.workers,
        "exact": entry.contestant.exact,
    }
    if not entry.rounds:
        return {**found, "not run": entry.why_not}
    spread = sorted(cost.seconds / entry.images for cost in entry.rounds)
    return {
        **found,
        "images per round": entry.images,
        "batch size": entry.job.batch_size,
        "rounds": [cost._asdict() for cost in entry.rounds],
        "median ms": 1000 * entry.seconds,
        "lowest ms": 1000 * spread[0],
        "highest ms": 1000 * spread[-1],
        "median CPU ms": 1000 * entry.cpu_seconds,
        "images per second": 1 / entry.seconds,
        "ratio": ratio(entry, first),
        "difference in levels": None if entry.stats is None else entry.stats.as_data(),
    }


def ratio(entry: Entry, first: Entry) -> float | None:
    """How many times as fast as the first entry: the median over the rounds of the ratio within a round."""
    if not first.rounds or not entry.rounds:
        return None
    seconds = ([cost.seconds for cost in each.rounds] for each in (entry, first))
    return costs.ratio(*seconds) * entry.images / first.images
