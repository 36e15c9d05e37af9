"""SPDL: FFmpeg decodes and filters in threads, ``spdl.pipeline`` runs the stages."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image

from accel.cli.harness import Batch
from bench.contestants.contestant import Contestant, Epoch, Item, batch, planes
from bench.job import Job
from bench.pipelines import Draw


class Spdl(Contestant):
    key = "spdl"
    title = "SPDL"
    modules = ("spdl.io", "spdl.pipeline")
    pipelines = frozenset({"train", "eval", "decode"})
    scales = ("threads",)
    settings = "PipelineBuilder: load_image with an FFmpeg filter (crop, scale bilinear, hflip), threads as stated"

    def why_not(self) -> str | None:
        return super().why_not() or _without_ffmpeg()

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        import spdl.io
        from spdl.pipeline import PipelineBuilder

        def load(item: Item) -> Any:
            file, draw = item
            return spdl.io.to_numpy(spdl.io.load_image(file, filter_desc=_filter(draw)))

        def collate(images: list[Any]) -> Batch:
            return batch([planes(image) for image in images], job.pipeline)

        def epoch(seed: int) -> Iterator[Batch]:
            items = [item for items in job.batches(seed) for item in items]
            builder = PipelineBuilder().add_source(items)
            builder.pipe(load, concurrency=job.threads, output_order="input").aggregate(job.batch_size).pipe(collate)
            pipeline = builder.add_sink(2).build(num_threads=job.threads)
            with pipeline.auto_stop():
                yield from pipeline

        yield epoch


def _without_ffmpeg() -> str | None:
    """Its own libraries load only at the first use, and only where they find FFmpeg's."""
    import spdl.io

    stream = io.BytesIO()
    Image.new("RGB", (16, 16)).save(stream, "JPEG")
    try:
        spdl.io.load_image(stream.getvalue())
    except RuntimeError as error:
        return f"needs FFmpeg's shared libraries: {str(error)[:60]}..."
    return None


def _filter(draw: Draw) -> str:
    crop = "crop={3}:{2}:{1}:{0}:exact=1"
    steps = ((crop, draw.box), ("scale={1}:{0}:flags=bilinear", draw.size), (crop, draw.window))
    made = [step.format(*numbers) for step, numbers in steps if numbers is not None]
    return ",".join([*made, *["hflip"] * draw.flip, "format=rgb24"])
