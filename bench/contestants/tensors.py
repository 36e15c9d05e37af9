"""torchvision's v2 transforms as documented: a PIL image, ``ToImage()``, then tensors; and the same under accel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torchvision.datasets import folder
from torchvision.transforms import v2

import accel
from bench.contestants.contestant import InLoader
from bench.job import Batch, Job
from bench.pipelines import Draw, Pipeline


class Tensors(InLoader):
    key = "torchvision-v2-images"
    title = "torchvision v2, ToImage"
    pipelines = frozenset({"train", "eval"})
    follows_seed = True
    exact = True
    settings = "default_loader, transforms.v2 after ToImage(), DataLoader"

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        transform = v2.Compose([v2.ToImage(), pipeline.v2(), v2.ToPureTensor()])
        return lambda image, draw: transform(folder.default_loader(image))


class AccelTensors(Tensors):
    key = "accel-cpu-v2-images"
    title = "accel, cpu"
    settings = "torchvision v2's script, accel.set_image_backend('cpu')"

    @contextmanager
    def in_force(self, job: Job) -> Iterator[None]:
        with accel.image_backend("cpu", threads=job.threads):
            yield

    def finish(self, batch: Batch) -> Batch:
        assert not isinstance(batch, list)
        return batch.to("cpu")  # type: ignore[union-attr]
