"""nvImageCodec by hand: regions decoded in batches, resized by torch with antialiasing, in an own collate function."""

from __future__ import annotations

from collections.abc import Callable
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

        decoders: list[Any] = []  # made where it is used: a worker makes its own
        parameters = nvimgcodec.DecodeParams(color_spec=nvimgcodec.ColorSpec.SRGB, apply_exif_orientation=False)

        def stream(file: str, draw: Draw) -> Any:
            whole = nvimgcodec.CodeStream(Path(file).read_bytes())
            if draw.box is None:
                return whole
            top, left, height, width = draw.box
            return whole.get_sub_code_stream(region=nvimgcodec.Region(top, left, top + height, left + width))

        def collate(items: list[Item]) -> Batch:
            if not decoders:
                cpu = [nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)]
                decoders.append(
                    nvimgcodec.Decoder(
                        device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
                        max_num_cpu_threads=1,
                        backends=cpu,
                        options=":fancy_upsampling=1",
                    )
                )
            images = decoders[0].decode([stream(file, draw) for file, draw in items], params=parameters)
            decoded, draws = [planes(image.cpu()) for image in images], [draw for _, draw in items]
            kept = [_resized(image, draw) for image, draw in zip(decoded, draws, strict=True)]
            if not pipeline.boxes:
                return batch(kept, pipeline)
            sizes = [(image.shape[1], image.shape[2]) for image in decoded]
            return batch(kept, pipeline, [boxes_after(size, draw) for size, draw in zip(sizes, draws, strict=True)])

        return collate


def _resized(image: torch.Tensor, draw: Draw) -> torch.Tensor:
    if draw.size is not None:
        image = F.resize(image, list(draw.size), antialias=True)
    if draw.window is not None:
        top, left, height, width = draw.window
        image = image[:, top : top + height, left : left + width]
    return image.flip(2) if draw.flip else image
