"""FFCV: its own file format, filled with the original JPEG bytes, and its own loader, compiled by numba.

Its PyPI release is built from source and needs the headers of OpenCV and libturbojpeg (Debian: libopencv-dev,
libturbojpeg0-dev). Its crops and flips come from numba's generator, so those of the train pipeline are its own.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.contestants.contestant import Contestant, Epoch
from bench.job import Job


class Ffcv(Contestant):
    key = "ffcv"
    title = "FFCV"
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
        """A JPEG file as it is; FFCV would encode it anew."""

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
