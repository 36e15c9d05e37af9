"""Libraries on arrays [height, width, 3]: OpenCV, what most hand-written fast loaders are; AlbumentationsX; kornia-rs.

Linear interpolation does not antialias in any of them; see ``OpenCVArea``. And nvImageCodec, with torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from accel.cli.harness import TensorBatch
from bench.contestants.contestant import Epoch, InLoader, Item, batch, part, planes, transformed
from bench.pipelines import Draw, Job, Pipeline, boxes_after

Functions = tuple[Callable[..., Any], ...]
"""A library's functions: reading a file; resizing an array to (width, height); flipping it; padding it."""


class OpenCV(InLoader):
    key = "opencv"
    title = "OpenCV, linear"
    distributions: tuple[str, ...] = ("opencv-python-headless",)
    modules: tuple[str, ...] = ("cv2",)
    pipelines = frozenset({"train", "eval", "decode", "cifar", "detection", "png"})
    settings = "imread(IMREAD_COLOR_RGB), resize(INTER_LINEAR): no antialiasing; setNumThreads(1), DataLoader"
    filter: str = "INTER_LINEAR"

    def start_worker(self) -> None:
        import cv2

        cv2.setNumThreads(1)

    def functions(self) -> Functions:
        import cv2

        how = getattr(cv2, self.filter)
        return (
            lambda file: cv2.imread(file, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION),
            lambda image, size: cv2.resize(image, size, interpolation=how),
            lambda image: cv2.flip(image, 1),
            lambda image, pad: cv2.copyMakeBorder(image, pad, pad, pad, pad, cv2.BORDER_CONSTANT),
        )

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        read, resize, flip, *pad = self.functions()

        def one(image: Any, draw: Draw) -> Any:
            if pipeline.source == "files":
                image = read(image)
            size = image.shape[:2]
            if pipeline.pad:
                image = pad[0](image, pipeline.pad)
            if draw.box is not None:
                image = part(image, draw.box)
            if draw.size is not None:
                image = resize(image, draw.size[::-1])
            if draw.window is not None:
                image = part(image, draw.window)
            image = planes(flip(image) if draw.flip else image)
            return (image, boxes_after(size, draw)) if pipeline.boxes else image

        return one

    def collate(self, pipeline: Pipeline) -> Callable[[list[Any]], TensorBatch]:
        return partial(batch, pipeline=pipeline)


class OpenCVArea(OpenCV):
    key = "opencv-area"
    title = "OpenCV, area"
    pipelines = frozenset({"train", "eval"})
    settings = "as OpenCV, linear, with INTER_AREA, which averages where it makes smaller"
    filter = "INTER_AREA"


class Kornia(OpenCV):
    """kornia-rs, kornia's way of preparing images on the CPU."""

    key = "kornia"
    title = "kornia-rs"
    distributions = ("kornia-rs",)
    modules = ("kornia_rs",)
    pipelines = frozenset({"train", "eval", "decode"})
    settings = "io.read_image_jpegturbo, resize('bilinear'): no antialiasing; normalised by torch, DataLoader"

    def start_worker(self) -> None:
        """Nothing to set."""

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        if job.workers:  # they wait for ever for the threads that the process had
            raise RuntimeError("kornia-rs hangs in workers that are forked by a process that has used it")
        with super().open(job) as epoch:
            yield epoch

    def functions(self) -> Functions:
        import kornia_rs

        resize = kornia_rs.imgproc.resize
        return (
            lambda file: np.asarray(kornia_rs.io.read_image_jpegturbo(file)),
            lambda image, size: np.asarray(resize(np.ascontiguousarray(image), size[::-1], "bilinear")),
            lambda image: np.asarray(kornia_rs.imgproc.horizontal_flip(image)),
        )


class AlbumentationsX(OpenCV):
    """``A.Compose`` on arrays that OpenCV reads."""

    key = "albumentationsx"
    title = "AlbumentationsX"
    distributions = ("albumentationsx", "opencv-python-headless")
    modules = ("albumentations", "cv2")
    pipelines = frozenset({"train", "eval", "cifar", "jitter"})
    own_draws = frozenset({"jitter"})
    settings = "cv2.imread, A.Compose(A.RandomResizedCrop, ..., A.Normalize, A.ToTensorV2), linear: no antialiasing"

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        import albumentations as A
        from albumentations.core.transform_params import SampledParams

        drawn = [Draw()]  # the image's draw, which the classes below use in place of their own random numbers

        class Given:
            """A crop with a given box. (It draws fewer random numbers, which is to its advantage.)"""

            def sample_parameters(self, params: Any, data: Any, targets: Any, sampling: Any) -> Any:
                top, left, height, width = drawn[0].box or (0, 0, 0, 0)
                box = {"crop_coords": (left, top, left + width, top + height)}
                return SampledParams(box | extra)

        class ResizedCrop(Given, A.RandomResizedCrop):  # type: ignore[misc]
            pass

        class Crop(Given, A.RandomCrop):  # type: ignore[misc]
            pass

        ranges = dict.fromkeys(("brightness_range", "contrast_range", "saturation_range"), (0.6, 1.4))
        extra = {"pad_params": None} if pipeline.name == "cifar" else {}
        geometry: dict[str, Callable[[], list[Any]]] = {
            "train": lambda: [ResizedCrop((224, 224), p=1)],
            "eval": lambda: [A.SmallestMaxSize(256), A.CenterCrop(224, 224)],
            "cifar": lambda: [A.Pad(pipeline.pad), Crop(32, 32)],
            "jitter": lambda: [ResizedCrop((224, 224), p=1), A.ColorJitter(p=1, **ranges, hue_range=(-0.1, 0.1))],
        }
        steps = geometry[pipeline.name]()
        last = [A.Normalize(pipeline.mean, pipeline.std), A.ToTensorV2()]
        flips: tuple[list[Any], ...] = [], [A.HorizontalFlip(p=1)]
        transforms = [A.Compose([*steps, *flip, *last], telemetry=False) for flip in flips]
        read, *_ = self.functions()

        def one(image: Any, draw: Draw) -> Any:
            drawn[0] = draw
            return transforms[draw.flip](image=read(image) if pipeline.source == "files" else image)["image"]

        return one

    def collate(self, pipeline: Pipeline) -> Callable[[list[Any]], TensorBatch]:
        return InLoader.collate(self, pipeline)


class NvImageCodec(InLoader):
    """By hand: regions decoded in batches, resized by torch with antialiasing, in an own collate function."""

    key = "nvimagecodec"
    title = "nvImageCodec by hand"
    distributions = ("nvidia-nvimgcodec-cu13",)
    modules = ("nvidia.nvimgcodec",)
    pipelines = frozenset({"train", "eval", "decode", "detection"})
    settings = (
        "CodeStream regions, Decoder(CPU_ONLY, fancy_upsampling=1).decode(batch), "
        "torch's antialiased uint8 resize, in collate_fn of a DataLoader"
    )

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        return lambda file, draw: (file, draw)  # the work is the batch's

    def collate(self, pipeline: Pipeline) -> Callable[[list[Item]], TensorBatch]:
        from nvidia import nvimgcodec

        parameters = nvimgcodec.DecodeParams(color_spec=nvimgcodec.ColorSpec.SRGB, apply_exif_orientation=False)

        def stream(file: str, draw: Draw) -> Any:
            whole = nvimgcodec.CodeStream(Path(file).read_bytes())
            if draw.box is None:
                return whole
            top, left, height, width = draw.box
            return whole.get_sub_code_stream(region=nvimgcodec.Region(top, left, top + height, left + width))

        @cache  # made where it is used: a worker makes its own
        def decoder() -> Any:
            return nvimgcodec.Decoder(
                device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
                max_num_cpu_threads=1,
                backends=[nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)],
                options=":fancy_upsampling=1",
            )

        def collate(items: list[Item]) -> TensorBatch:
            images = decoder().decode([stream(file, draw) for file, draw in items], params=parameters)
            whole = zip(images, items, strict=True)
            return batch([transformed(planes(image.cpu()), draw, pipeline) for image, (_, draw) in whole], pipeline)

        return collate
