"""Measuring libraries beside each other: those that can run are checked and timed in turns, the others reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from accel.cli import costs, harness
from accel.cli.arguments import Red
from accel.cli.costs import Clock
from accel.cli.error_stats import Different, ErrorStats
from accel.cli.harness import TensorBatch
from bench.contestants.contestant import Contestant
from bench.pipelines import Job, Pipeline


class Entry(harness.Contestant):
    """A contestant with its settings in a workload; its rounds, or the reason why there are none.

    Attributes:
        name: its name in tables, unique in the workload.
        stats: differences from the reference; None if they cannot be compared.
    """

    def __init__(self, name: str, who: Contestant, job: Job, reference: Entry | None = None) -> None:
        context = partial(who.in_force, job)
        super().__init__(name, lambda seed: iter(()), job.names, reference, context=context, threads=job.threads)
        self.who, self.job = who, job
        self.why_not: str | None = None
        self.stats = None if job.pipeline.name in who.own_draws else ErrorStats(levels(job.pipeline))
        if not who.exact:
            self.compare = check_likely if self.stats is None else partial(harness.compare, stats=self.stats)

    @property
    def images(self) -> int:
        """The number of images of a round."""
        return len(self.job.order)

    @property
    def seconds(self) -> float:
        """Median wall-clock seconds of one image."""
        return median(cost.seconds for cost in self.rounds) / self.images

    @property
    def cpu_seconds(self) -> float:
        """Median CPU seconds of one image, workers included."""
        return median(cost.cpu_seconds for cost in self.rounds) / self.images


@contextmanager
def opened(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Open entries, references before those compared with them; yield those that can run in the block."""
    with ExitStack() as stack:
        for entry in entries:
            entry.why_not = entry.who.why_not()
            reference = entry.reference
            if isinstance(reference, Entry) and reference.why_not:
                entry.why_not = entry.why_not or f"its reference, {reference.name}, did not run"
            if entry.why_not is None:
                try:
                    entry.epoch = stack.enter_context(entry.who.open(entry.job))
                except Exception as error:  # of any library; the others can still be measured
                    if entry.who.exact:
                        raise
                    entry.why_not = f"{type(error).__name__}: {error}".splitlines()[0]
        yield [entry for entry in entries if entry.why_not is None]


def take_turns(
    entries: Sequence[Entry],
    rounds: int,
    on_turn: Callable[[str], None] = lambda text: None,
    beside: Mapping[str, Callable[[int], Any]] = MappingProxyType({}),
) -> None:
    """Check and measure entries.

    Args:
        entries: references before those compared with them; they get the rounds.
        rounds: epochs of each, in turns: A B C A B C.
        on_turn: called with a short text after each epoch, including the check's.
        beside: other turns, taken before theirs.

    Raises:
        Red: an exact contestant's tensors differ from the reference's.
    """
    with opened(entries) as running:
        differences = harness.check(running)
        for entry in running:
            if (difference := differences.get(entry.name)) is not None:
                if entry.who.exact:
                    raise Red(difference)
                entry.why_not = str(difference)
        for entry in entries:
            on_turn(f"{entry.name}: checked")
        harness.measure([entry for entry in running if entry.why_not is None], rounds, on_turn, beside)


class Fed(NamedTuple):
    """The figures of an epoch: images a second, the share of time waiting for batches, CPU seconds for an image."""

    rate: float
    waiting: float
    cpu_seconds: float


def fed(
    batches: Iterable[Any], use: Callable[[Any], int], warm_up: int = 1, settle: Callable[[], None] = lambda: None
) -> Fed:
    """Use all batches as training does, without measuring the first ones, which fill queues and compile.

    Args:
        use: uses a batch and returns its number of images. settle: waits for what ``use`` has begun.
    """
    clock, waiting, images, number = Clock(), 0.0, 0, 0
    iterator = iter(batches)
    asked = time.perf_counter()
    while (batch := next(iterator, None)) is not None:
        came = time.perf_counter()
        used = use(batch)
        number += 1
        if number > warm_up:
            waiting += came - asked
            images += used
        elif number == warm_up:
            settle()
            clock = Clock()
        asked = time.perf_counter()
    settle()
    seconds, cpu = clock.cost()
    return Fed(images / seconds, waiting / seconds, cpu / images)


def levels(pipeline: Pipeline) -> torch.Tensor:
    """The number of uint8 levels in one unit of a pipeline's values, [3, 1, 1]."""
    if pipeline.std is None:
        return torch.ones(3, 1, 1)
    return torch.tensor(pipeline.std, dtype=torch.float64).view(3, 1, 1) * 255


def check_likely(wanted: TensorBatch, found: TensorBatch, names: Sequence[str] = ("",)) -> None:
    """Check what can be checked if a contestant draws its own random parameters.

    Raises:
        Different: other shapes or dtypes, values that are not finite, or a mean or spread of the whole batch
            that its random changes cannot explain.
    """
    harness.compare(wanted, found, names, ErrorStats())
    a, b = (torch.cat([image.double().flatten() for image in batch]) for batch in (wanted, found))
    if abs(float(a.mean() - b.mean())) > float(a.std()) or not 0.5 < float(b.std() / a.std()) < 2:
        raise Different(f"mean {b.mean():.3g} and spread {b.std():.3g} instead of {a.mean():.3g} and {a.std():.3g}")


def as_data(entry: Entry, first: Entry) -> dict[str, Any]:
    """All figures of an entry: of every round, the medians, and the speed relative to the first entry."""
    found: dict[str, Any] = {
        "contestant": entry.who.key,
        "name": entry.name,
        "reference": entry.reference and entry.reference.name,
        "settings": entry.who.settings,
        "threads": entry.job.threads,
        "workers": entry.job.workers,
        "exact": entry.who.exact,
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
    """The speed relative to the first entry: the median over rounds of the ratio within a round; None if unknown."""
    if not first.rounds or not entry.rounds:
        return None
    seconds = ([cost.seconds for cost in each.rounds] for each in (entry, first))
    return costs.ratio(*seconds) * entry.images / first.images
