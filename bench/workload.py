"""What a workload is: a name in the registry and a function that measures its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from accel.cli.contest import Contestant, Cost, Difference


class Setting(NamedTuple):
    """What a run of the benchmark has in common.

    ``folder`` holds the images, of which ``limit`` are used (None: all).
    """

    folder: Path
    limit: int | None
    batch_size: int
    rounds: int


class Red(Exception):
    """A contestant's tensors are not the reference's, so there is nothing to report."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))


@dataclass(frozen=True)
class Row:
    """The figures of one contestant.

    Attributes:
        units: how many images (or whatever the workload counts) a round has.
        rounds: what each round cost.
        reference: it belongs to what the others are compared with.
        under: what it ran under: backend, options, threads.
        steps: median seconds of each step, for one unit.
    """

    name: str
    units: int
    rounds: Sequence[Cost]
    reference: bool = False
    under: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Median wall-clock seconds of one unit."""
        return median(cost.seconds for cost in self.rounds) / self.units

    @property
    def cpu_seconds(self) -> float:
        """Median CPU seconds of one unit, workers included."""
        return median(cost.cpu_seconds for cost in self.rounds) / self.units


@dataclass(frozen=True)
class Workload:
    """An entry of the registry (``bench.workloads``).

    Attributes:
        title: what is measured, in one line.
        measure: checks and measures; raises Red.
        unit: what the figures are for one of.
    """

    name: str
    title: str
    measure: Callable[[Setting], list[Row]]
    unit: str = "image"


def under(contestant: Contestant) -> dict[str, Any]:
    """What a contestant runs under, for the record."""
    return {
        "backend": contestant.backend,
        "options": dict(contestant.options),
        "torch threads": contestant.torch_threads or "all cores",
    }
