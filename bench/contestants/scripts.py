"""Scripts of torchvision's transforms: on PIL images (the reference), on tensors, and both under accel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from PIL import Image
from torchvision import io
from torchvision.datasets import folder
from torchvision.transforms import v2

import accel
from accel.cli.harness import TensorBatch
from bench.contestants.contestant import InLoader
from bench.pipelines import PIPELINES, Draw, Job, Pipeline


class TorchvisionV1(InLoader):
    """The script that most people have, and the reference."""

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


class Tensors(TorchvisionV1):
    """transforms.v2 as documented: a PIL image, ``ToImage()``, then tensors."""

    key = "torchvision-v2-images"
    title = "torchvision v2, ToImage"
    pipelines = frozenset({"train", "eval"})
    settings = "default_loader, transforms.v2 after ToImage(), DataLoader"

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        transform = v2.Compose([v2.ToImage(), pipeline.v2(), v2.ToPureTensor()])
        return lambda image, draw: transform(folder.default_loader(image))


class AccelCpu(TorchvisionV1):
    """The script, unchanged, under the cpu backend."""

    key = "accel-cpu"
    title = "accel, cpu"
    scales = ("workers", "threads")
    settings = "torchvision v1's script, accel.set_image_backend('cpu')"

    def in_force(self, job: Job) -> AbstractContextManager[Any]:
        return accel.image_backend("cpu", threads=job.threads)

    def finish(self, batch: TensorBatch) -> TensorBatch:
        return batch.to("cpu") if isinstance(batch, torch.Tensor) else [image.to("cpu") for image in batch]


class AccelTensors(AccelCpu, Tensors):
    key = "accel-cpu-v2-images"
    pipelines = Tensors.pipelines
    settings = "torchvision v2's script, accel.set_image_backend('cpu')"


class TorchvisionV2(InLoader):
    """transforms.v2 on uint8 tensors, which torchvision's documentation recommends for speed."""

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
        read = self.reader() if pipeline.source == "files" else _planes
        return lambda image, draw: transform(read(image))

    def reader(self) -> Callable[[str], torch.Tensor]:
        """The function that reads a file."""
        return lambda file: io.decode_image(io.read_file(file), io.ImageReadMode.RGB)


class TorchCodec(TorchvisionV2):
    """The successors of torchvision.io's decoders."""

    key = "torchcodec"
    title = "TorchCodec + v2"
    distributions = ("torchcodec",)
    modules = ("torchcodec.decoders",)
    pipelines = frozenset({"train", "eval", "decode", "detection", "jitter", "randaugment", "trivialaugment", "png"})
    settings = "torchcodec.decoders.decode_image, transforms.v2 on uint8 tensors, DataLoader"

    def reader(self) -> Callable[[str], torch.Tensor]:
        from torchcodec.decoders import decode_image

        return decode_image  # type: ignore[no-any-return]


def _planes(pixels: Any) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
