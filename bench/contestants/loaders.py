"""Libraries with loaders of their own: SPDL (FFmpeg decodes and filters in threads), dataloader-rs (threads) and
FFCV (a file format, numba).

FFCV's file is filled with the original JPEG bytes. Its crops and flips come from numba's generator, so those of the
train pipeline are its own.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from accel.cli.harness import TensorBatch
from bench.contestants.contestant import Contestant, Epoch, Item, batch, planes, transformed
from bench.contestants.scripts import TorchvisionV2
from bench.pipelines import Draw, Job


class Spdl(Contestant):
    key = "spdl"
    title = "SPDL"
    distributions = ("spdl",)
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

        def collate(images: list[Any]) -> TensorBatch:
            return batch([planes(image) for image in images], job.pipeline)

        def epoch(seed: int) -> Iterator[TensorBatch]:
            items = [item for items in job.batches(seed) for item in items]
            builder = PipelineBuilder().add_source(items)
            builder.pipe(load, concurrency=job.threads, output_order="input").aggregate(job.batch_size).pipe(collate)
            pipeline = builder.add_sink(2).build(num_threads=job.threads)
            with pipeline.auto_stop():
                yield from pipeline

        yield epoch


def _without_ffmpeg() -> str | None:
    """The reason why SPDL cannot run, or None: its libraries load at first use, and only if they find FFmpeg's."""
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


class DataloaderRs(Contestant):
    key = "dataloader-rs"
    title = "dataloader-rs + v2"
    distributions = ("dataloader-rs",)
    modules = ("dataloader_rs",)
    pipelines = frozenset({"train", "eval"})
    scales = ("threads",)
    settings = (
        "PyDataloader(num_workers=threads as stated, prefetch_depth=2) on a PyDataset: torchvision.io.decode_image, "
        "torch's antialiased uint8 resize"
    )

    def in_force(self, job: Job) -> AbstractContextManager[Any]:
        return TorchvisionV2().in_force(job)

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        from dataloader_rs import PyDataloader, PyDataset

        class Files(PyDataset):  # type: ignore[misc]
            items: Sequence[Item] = ()

            def __len__(self) -> int:
                return len(job.order)

            def __getitem__(self, number: int) -> Any:
                file, draw = self.items[number]
                image = read(file)
                if draw.box is not None:
                    top, left, height, width = draw.box
                    image = image[:, top : top + height, left : left + width]
                return transformed(image, draw, job.pipeline)

        read, files = TorchvisionV2().reader(), Files()
        loader = PyDataloader(
            files,
            batch_size=job.batch_size,
            num_workers=job.threads,
            prefetch_depth=2,
            collate_fn=partial(batch, pipeline=job.pipeline),
        )

        def epoch(seed: int) -> Iterator[TensorBatch]:
            files.items = [item for items in job.batches(seed) for item in items]
            yield from loader

        yield epoch


class Ffcv(Contestant):
    key = "ffcv"
    title = "FFCV"
    distributions = ("ffcv",)
    modules = ("ffcv",)
    pipelines = frozenset({"train", "eval"})
    own_draws = frozenset({"train"})
    scales = ("threads",)
    settings = (
        "original JPEG bytes in a .beton file (page cache, os_cache=True), RandomResizedCropRGBImageDecoder (area), "
        "NormalizeImage, Loader(num_workers as stated)"
    )

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        from ffcv.fields import RGBImageField
        from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

        mean, std = (255 * np.array(values, np.float32) for values in (job.pipeline.mean, job.pipeline.std))
        steps: list[Any] = {
            "train": lambda: [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()],
            "eval": lambda: [CenterCropRGBImageDecoder((224, 224), ratio=224 / 256)],
        }[job.pipeline.name]()
        steps += [NormalizeImage(mean, std, np.float32), ToTensor(), ToTorchImage()]
        with tempfile.TemporaryDirectory(prefix="accel-ffcv-") as folder:
            file = str(Path(folder) / "images.beton")
            _write(job, file)
            loader = Loader(
                file,
                batch_size=job.batch_size,
                num_workers=job.threads,
                order=OrderOption.SEQUENTIAL,
                os_cache=True,
                drop_last=False,
                pipelines={"image": steps},
                custom_fields={"image": RGBImageField},
            )

            def epoch(seed: int) -> Iterator[torch.Tensor]:
                for (images,) in loader:
                    yield images

            yield epoch


def _write(job: Job, file: str) -> None:
    from ffcv.fields import RGBImageField
    from ffcv.fields.rgb_image import IMAGE_MODES
    from ffcv.writer import DatasetWriter

    class Original(RGBImageField):  # type: ignore[misc]
        """An unchanged JPEG file, which FFCV would re-encode."""

        def encode(self, destination: Any, item: Any, malloc: Any) -> None:
            data, (destination["height"], destination["width"]) = item
            destination["mode"] = IMAGE_MODES["jpg"]
            destination["data_ptr"], storage = malloc(len(data))
            storage[:] = data

    class Files:
        def __len__(self) -> int:
            return len(job.order)

        def __getitem__(self, number: int) -> Any:
            index = job.order[number]
            return ((np.fromfile(job.images.files[index], np.uint8), job.sizes[index]),)

    writer = DatasetWriter(file, {"image": Original()}, num_workers=1)
    with redirect_stderr(io.StringIO()):  # its progress bar
        writer.from_indexed_dataset(Files(), shuffle_indices=False)
