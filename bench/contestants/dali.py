"""DALI's pipelines, with its CPU operators.

Recommended for training: decode only the crop (here ``decoders.image_slice``, the form of ``image_random_crop`` that
takes the crop as an input), ``resize`` with antialiasing, ``crop_mirror_normalize``. Files come through an external
source that ends with the epoch: ``readers.file`` would read ahead into the next one, off the clock.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bench.contestants.contestant import Contestant, Epoch
from bench.job import Job
from bench.pipelines import Draw, Pipeline


class Dali(Contestant):
    key = "dali"
    title = "DALI pipeline, CPU"
    modules = ("nvidia.dali",)
    pipelines = frozenset({"train", "eval", "jitter", "randaugment"})
    own_draws = frozenset({"jitter", "randaugment"})
    scales = ("threads",)
    settings = (
        "decoders.image_slice, resize(INTERP_LINEAR, antialias), crop_mirror_normalize; "
        "num_threads as stated, prefetch_queue_depth 2"
    )

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        from nvidia.dali.plugin.base_iterator import LastBatchPolicy
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        source = Source(job, job.images.files)
        pipeline = build(job, source)
        pipeline.build()
        batches = DALIGenericIterator(
            [pipeline],
            ["images"],
            last_batch_policy=LastBatchPolicy.PARTIAL,
            auto_reset=False,
            prepare_first_batch=False,
        )

        def epoch(seed: int) -> Iterator[torch.Tensor]:
            source.seed = seed
            batches.reset()
            for batch in batches:
                yield batch[0]["images"]

        yield epoch


class Source:
    """An epoch's files, or their contents, and draws, batch by batch."""

    def __init__(self, job: Job, files: Sequence[str | bytes]) -> None:
        self._job, self._files = job, files
        self.seed = 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        job, draws = self._job, self._job.draws(self.seed)
        for first in range(0, len(job.order), job.batch_size):
            part = slice(first, first + job.batch_size)
            files = [self._files[index] for index in job.order[part]]
            contents = [
                np.frombuffer(each, np.uint8) if isinstance(each, bytes) else np.fromfile(each, np.uint8)
                for each in files
            ]
            yield contents, *inputs(job.pipeline, draws[part])


def inputs(pipeline: Pipeline, draws: list[Draw]) -> list[list[npt.NDArray[Any]]]:
    """The pipeline's inputs beside the files: DALI warns of inputs that are not used."""
    found = geometry(draws)
    return found[2:] if pipeline.name == "eval" else found


def geometry(draws: list[Draw]) -> list[list[npt.NDArray[Any]]]:
    """For each image: the crop's corner and size in the source, the size to resize to, the flip, and where in the
    resized image the window is, as DALI counts it: 0 left or top, 1 right or bottom."""
    boxes = [draw.box or (0, 0, 1, 1) for draw in draws]
    return [
        [np.array(box[:2], np.int32) for box in boxes],
        [np.array(box[2:], np.int32) for box in boxes],
        [np.array(draw.size, np.float32) for draw in draws],
        [np.array(draw.flip, np.int32) for draw in draws],
        [np.array(_position(draw, 1), np.float32) for draw in draws],
        [np.array(_position(draw, 0), np.float32) for draw in draws],
    ]


def _position(draw: Draw, axis: int) -> float:
    if draw.window is None or draw.size is None:
        return 0.5
    return draw.window[axis] / max(draw.size[axis] - draw.window[axis + 2], 1)


def build(job: Job, source: Any) -> Any:
    """The pipeline for CPU operators."""
    from nvidia.dali import fn, pipeline_def, types

    pipeline = job.pipeline

    warnings.filterwarnings("ignore", category=DeprecationWarning, module="nvidia.dali")  # of its rand_augment

    @pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=job.batch_size,
        num_threads=job.threads,
        device_id=None,
        prefetch_queue_depth=2,
        enable_conditionals=pipeline.name == "randaugment",
    )
    def made() -> Any:
        outputs = 5 if pipeline.name == "eval" else 7
        files, *box, size, flip, x, y = fn.external_source(
            source=source, num_outputs=outputs, batch=True, cycle="raise"
        )
        if pipeline.name == "eval":
            images = fn.decoders.image(files, output_type=types.RGB, adjust_orientation=False)
        else:
            images = fn.decoders.image_slice(files, *box, axes=(0, 1), output_type=types.RGB, adjust_orientation=False)
        images = fn.resize(images, size=size, interp_type=types.INTERP_LINEAR, antialias=True)
        images = _recoloured(images, pipeline)
        return fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            crop=(224, 224),
            crop_pos_x=x,
            crop_pos_y=y,
            mirror=flip,
            mean=[255 * value for value in pipeline.mean or ()],
            std=[255 * value for value in pipeline.std or ()],
        )

    return made()


def _recoloured(images: Any, pipeline: Pipeline) -> Any:
    from nvidia.dali import fn
    from nvidia.dali.auto_aug import rand_augment

    if pipeline.name == "jitter":
        factors = {name: fn.random.uniform(range=(0.6, 1.4)) for name in ("brightness", "contrast", "saturation")}
        return fn.color_twist(images, hue=fn.random.uniform(range=(-36.0, 36.0)), **factors)
    if pipeline.name == "randaugment":
        return rand_augment.rand_augment(images, n=2, m=9, shape=(224, 224), fill_value=0)
    return images
