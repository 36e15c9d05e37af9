"""torchvision's transforms on PIL images: the script that most people have, and the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PIL import Image
from torchvision.datasets import folder

from bench.contestants.contestant import InLoader
from bench.pipelines import PIPELINES, Draw, Pipeline


class TorchvisionV1(InLoader):
    key = "torchvision-v1"
    title = "torchvision v1, PIL"
    pipelines = frozenset(PIPELINES)
    follows_seed = True
    exact = True
    settings = "default_loader, transforms.Compose on PIL images, DataLoader"

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        transform = pipeline.v1()
        load = folder.default_loader if pipeline.source == "files" else Image.fromarray
        return lambda image, draw: transform(load(image))  # draws its own: the same, from the same seed
