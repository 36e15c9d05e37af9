"""torchvision's v2 transforms on uint8 tensors, which its documentation recommends for speed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torchvision import io

from bench.contestants.contestant import InLoader
from bench.job import Job
from bench.pipelines import PIPELINES, Draw, Pipeline


class TorchvisionV2(InLoader):
    key = "torchvision-v2"
    title = "torchvision v2, tensors"
    pipelines = frozenset(PIPELINES)
    own_draws = frozenset({"randaugment", "trivialaugment"})
    follows_seed = True
    settings = "torchvision.io.decode_jpeg, transforms.v2 on uint8 tensors, DataLoader"

    @contextmanager
    def in_force(self, job: Job) -> Iterator[None]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated since 0.29, and still torchvision's own fastest decoder
            yield

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        transform = pipeline.v2()
        load = _read if pipeline.source == "files" else _planes
        return lambda image, draw: transform(load(image))


def _read(file: str) -> torch.Tensor:
    image: torch.Tensor = io.decode_image(io.read_file(file), io.ImageReadMode.RGB)
    return image


def _planes(pixels: Any) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
