"""accel's cpu backend under torchvision's unchanged script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

import accel
from bench.contestants.torchvision_v1 import TorchvisionV1
from bench.job import Batch, Job


class AccelCpu(TorchvisionV1):
    key = "accel-cpu"
    title = "accel, cpu"
    scales = ("workers", "threads")
    settings = "torchvision v1's script, accel.set_image_backend('cpu')"

    @contextmanager
    def in_force(self, job: Job) -> Iterator[None]:
        with accel.image_backend("cpu", threads=job.threads):
            yield

    def finish(self, batch: Batch) -> Batch:
        if isinstance(batch, torch.Tensor):
            return batch.to("cpu")
        return [image.to("cpu") for image in batch]
