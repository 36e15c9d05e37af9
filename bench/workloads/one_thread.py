"""One thread, no DataLoader: file paths to stacked batches. What the arithmetic itself costs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torchvision.datasets import folder

from accel.cli.contest import Batch, Contestant
from accel.cli.data import Data, open_folder
from accel.cli.info import decoders
from accel.cli.pipelines import PIPELINES
from bench.timing import contest
from bench.workload import Row, Setting, Workload


def _measure(pipeline: str, setting: Setting) -> list[Row]:
    data = open_folder(setting.folder, PIPELINES[pipeline](), setting.limit)
    batches = partial(_batches, data, setting.batch_size)
    contestants = [Contestant("torchvision v1 with PIL", batches, torch_threads=1)]
    for engine, why_not in decoders().items():
        if engine == "auto" or why_not is None:
            options = {"threads": 1, "decode": engine}
            contestants.append(Contestant(f"accel, cpu, decode={engine}", batches, "cpu", options, torch_threads=1))
    return contest(f"one thread, {pipeline}", [contestants], data.files, setting.rounds)


def _batches(data: Data, size: int) -> Iterator[Batch]:
    samples = [data.dataset.samples[index] for index in data.order]
    for first in range(0, len(samples), size):
        some = samples[first : first + size]
        images = torch.stack([data.dataset.transform(folder.default_loader(path)) for path, _ in some])
        yield images, torch.tensor([label for _, label in some])


TRAIN = Workload("one_thread_train", "train pipeline on one thread", partial(_measure, "train"))
EVAL = Workload("one_thread_eval", "eval pipeline on one thread", partial(_measure, "eval"))
