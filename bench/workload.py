"""Workloads, the entries of the registry (``bench.workloads``), and their common setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel.cli import screen
from accel.system.cores import cores
from bench import usage
from bench.contestants import CONTESTANTS
from bench.contestants.contestant import Contestant
from bench.measure import Entry, as_data, take_turns
from bench.pipelines import PIPELINES, Images, Job

REFERENCE = CONTESTANTS["torchvision-v1"]
OURS = CONTESTANTS["accel-cpu"]


@dataclass(frozen=True)
class Setting:
    """The settings of a run, common to all workloads.

    Attributes:
        files: the photos, shuffled.
        scratch: a folder for files that workloads make.
        rounds: epochs of each contestant.
        limit: the most images of any workload's epoch; None for as many as the workload wants.
        contestants: those that take part.
    """

    files: Sequence[str]
    scratch: Path
    rounds: int
    limit: int | None
    contestants: Sequence[Contestant]

    @property
    def photos(self) -> Images:
        return Images(files=list(self.files[: self.limit]))

    @property
    def everybody(self) -> list[Contestant]:
        """All that take part, always with the reference and accel."""
        return [each for each in CONTESTANTS.values() if each in self.contestants or each in (REFERENCE, OURS)]

    def among(self, pipeline: str) -> list[Contestant]:
        """Those of them that can run a pipeline."""
        return [each for each in self.everybody if pipeline in each.pipelines]


@dataclass(frozen=True)
class Workload:
    """An entry of the registry.

    Attributes:
        title: what is measured, in one line.
        measure: checks and measures; returns plain data, the workload's part of the result file. Raises ``Red``.
    """

    name: str
    title: str
    measure: Callable[[Setting], dict[str, Any]]


def side_by_side(
    name: str,
    title: str,
    pipeline: str | None = None,
    images: Callable[[Setting], Images] = lambda setting: setting.photos,
    *,
    batch_size: int = 50,
    epoch: int | None = None,
    most: int | None = 1,
    rounds: int | None = None,
    who: Sequence[Contestant] = (),
) -> Workload:
    """A workload in which all that can run a pipeline make the same batches without worker processes.

    Args:
        pipeline: its name; None for that of the workload.
        epoch: the number of images of an epoch, repeated as needed; None for each once.
        most: the cores to which this process is pinned, and the most threads of a contestant; None for all.
        rounds: the most rounds, for a workload that takes long.
        who: the only contestants, the reference first.
    """

    chosen = pipeline or name

    def measure(setting: Setting) -> dict[str, Any]:
        found = images(setting)
        count = min(epoch or len(found), setting.limit or epoch or len(found))
        order = [number % len(found) for number in range(count)]
        threads = most or cores()
        job = Job(PIPELINES[chosen], found, order, min(batch_size, count), threads)
        first, *others = who or setting.among(chosen)
        reference = Entry(first.title, first, job)
        entries = [reference, *(Entry(each.title, each, job, reference) for each in others)]
        part = measured(name, entries, min(setting.rounds, rounds or setting.rounds), threads)
        return {"pipeline": chosen, "images": len(found), **part}

    return Workload(name, title, measure)


def measured(name: str, entries: Sequence[Entry], rounds: int, most: int) -> dict[str, Any]:
    """Check and measure entries in turns, on ``most`` cores, with a progress bar."""
    with usage.pinned(most) as pinned, screen.Bar(name, len(entries) * (1 + rounds)) as bar:
        take_turns(entries, rounds, lambda text: bar.advance())
    return {"cores": pinned, "entries": [as_data(entry, entries[0]) for entry in entries]}
