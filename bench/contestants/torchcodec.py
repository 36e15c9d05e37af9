"""TorchCodec's image decoders, the successors of torchvision.io's, with torchvision's v2 transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.contestants.torchvision_v2 import TorchvisionV2
from bench.pipelines import Draw, Pipeline


class TorchCodec(TorchvisionV2):
    key = "torchcodec"
    title = "TorchCodec + v2"
    modules = ("torchcodec.decoders",)
    pipelines = frozenset({"train", "eval", "decode", "detection", "jitter", "randaugment", "trivialaugment"})
    settings = "torchcodec.decoders.decode_image, transforms.v2 on uint8 tensors, DataLoader"

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        from torchcodec.decoders import decode_image

        transform = pipeline.v2()
        return lambda file, draw: transform(decode_image(file))
