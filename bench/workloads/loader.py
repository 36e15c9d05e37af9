"""ImageFolder and DataLoader on all cores, with and without workers: what a training loop gets."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from accel.cli.contest import Contestant, device
from accel.cli.data import Data, open_folder
from accel.cli.pipelines import PIPELINES
from bench.timing import contest
from bench.workload import Row, Setting, Workload


def _measure(pipeline: str, setting: Setting) -> list[Row]:
    data = open_folder(setting.folder, PIPELINES[pipeline](), setting.limit).repeated()
    groups = [
        [
            Contestant(f"{title}, {workers} workers", partial(_loader, data, setting.batch_size, workers), backend)
            for title, backend in (("torchvision", "torchvision"), ("accel, cpu", "cpu"))
        ]
        for workers in (2, 0)
    ]
    return contest(f"DataLoader, {pipeline}", groups, data.files, setting.rounds)


def _loader(data: Data, batch_size: int, workers: int) -> DataLoader[Any]:
    return DataLoader(
        data.dataset,
        batch_size,
        sampler=data.order,
        num_workers=workers,
        pin_memory=device().type == "cuda",
    )


TRAIN = Workload("loader_train", "train pipeline, ImageFolder and DataLoader", partial(_measure, "train"))
