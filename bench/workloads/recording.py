"""Recording only: the pipeline without its pixels, which is what an accelerator backend leaves to the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torchvision.datasets import folder

from accel.cli.contest import Batch, Contestant
from accel.cli.data import Data, open_folder
from accel.cli.pipelines import PIPELINES
from bench.timing import contest
from bench.workload import Row, Setting, Workload


class _Clock:
    """Seconds by step, an entry for each epoch."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []

    def per_unit(self, units: int) -> dict[str, float]:
        """Medians of all epochs but the first, which is the check's."""
        epochs = self.epochs[1:]
        return {step: median(epoch[step] for epoch in epochs) / units for step in epochs[0]}


def _measure(setting: Setting) -> list[Row]:
    data = open_folder(setting.folder, PIPELINES["train"](), setting.limit)
    clocks = [_Clock(), _Clock()]
    plain, ours = (partial(_batches, data, setting.batch_size, clock) for clock in clocks)
    contestants = [
        Contestant("torchvision v1 with PIL", plain, torch_threads=1),
        Contestant("accel, recording only", ours, "cpu", {"threads": 1}, torch_threads=1, late=True),
    ]
    rows = contest("recording", [contestants], data.files, setting.rounds)
    return [replace(row, steps=clock.per_unit(row.units)) for row, clock in zip(rows, clocks, strict=True)]


def _batches(data: Data, size: int, clock: _Clock) -> Iterator[Batch]:
    steps = [("load", folder.default_loader)]
    steps += [(type(transform).__name__, transform) for transform in data.dataset.transform.transforms]
    spent = dict.fromkeys([*(name for name, _ in steps), "stack"], 0.0)
    clock.epochs.append(spent)
    samples = [data.dataset.samples[index] for index in data.order]
    for first in range(0, len(samples), size):
        images = []
        for path, _ in samples[first : first + size]:
            image: Any = path
            for name, step in steps:
                begin = time.perf_counter()
                image = step(image)
                spent[name] += time.perf_counter() - begin
            images.append(image)
        begin = time.perf_counter()
        batch = torch.stack(images)
        spent["stack"] += time.perf_counter() - begin
        yield batch, torch.tensor([label for _, label in samples[first : first + size]])


TRAIN = Workload("recording_train", "train pipeline on one thread, recorded only", _measure)
