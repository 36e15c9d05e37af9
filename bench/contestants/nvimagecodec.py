"""nvImageCodec by hand: regions decoded in batches, resized by torch with antialiasing, in an own collate function."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torchvision.transforms.v2 import functional as F

from accel.cli.harness import Batch
from bench.contestants.contestant import InLoader, Item, batch, planes
from bench.pipelines import Draw, Pipeline, boxes_after


class NvImageCodec(InLoader):
    key = "nvimagecodec"
    title = "nvImageCodec by hand"
    modules = ("nvidia.nvimgcodec",)
    pipelines = frozenset({"train", "eval", "decode", "detection"})
    settings = (
        "CodeStream regions, Decoder(CPU_ONLY, fancy_upsampling=1).decode(batch), "
        "torch's antialiased uint8 resize, in collate_fn of a DataLoader"
    )

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        return lambda file, draw: (file, draw)  # the work is the batch's

    def collate(self, pipeline: Pipeline) -> Callable[[list[Item]], Batch]:
        from nvidia import nvimgcodec

        parameters = nvimgcodec.DecodeParams(color_spec=nvimgcodec.ColorSpec.SRGB, apply_exif_orientation=False)

        def stream(file: str, draw: Draw) -> Any:
            whole = nvimgcodec.CodeStream(Path(file).read_bytes())
            if draw.box is None:
                return whole
            top, left, height, width = draw.box
            return whole.get_sub_code_stream(region=nvimgcodec.Region(top, left, top + height, left + width))

        def made(image: torch.Tensor, draw: Draw) -> Any:
            size = image.shape[1], image.shape[2]
            if draw.size is not None:
                image = F.resize(image, list(draw.size), antialias=True)
            if draw.window is not None:
                top, left, height, width = draw.window
                image = image[:, top : top + height, left : left + width]
            image = image.flip(2) if draw.flip else image
            return (image, boxes_after(size, draw)) if pipeline.boxes else image

        @cache  # made where it is used: a worker makes its own
        def decoder() -> Any:
            return nvimgcodec.Decoder(
                device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
                max_num_cpu_threads=1,
                backends=[nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)],
                options=":fancy_upsampling=1",
            )

        def collate(items: list[Item]) -> Batch:
            images = decoder().decode([stream(file, draw) for file, draw in items], params=parameters)
            whole = zip(images, items, strict=True)
            return batch([made(planes(image.cpu()), draw) for image, (_, draw) in whole], pipeline)

        return collate
