"""DALI: its pipelines with CPU operators, and its dynamic mode: the same operators called one by one, on batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.dlpack import from_dlpack

from bench.contestants.contestant import Contestant, Epoch
from bench.pipelines import Draw, Job, Pipeline


class Dali(Contestant):
    key = "dali"
    title = "DALI pipeline, CPU"
    distributions = ("nvidia-dali-cuda130",)
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

        source = _Source(job)
        batches = DALIGenericIterator(
            [_build(job, source)],
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


class DaliByHand(Dali):
    """The pipeline alone, without a plugin's iterator; its memory is reused."""

    title = "DALI by hand, pooled memory"

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        source = _Source(job)
        pipeline = _build(job, source)

        def epoch(seed: int) -> Iterator[torch.Tensor]:
            source.seed = seed
            pipeline.reset()
            while True:
                try:
                    (outputs,) = pipeline.run()
                except StopIteration:
                    return
                yield from_dlpack(outputs.as_tensor())

        yield epoch


class DaliDynamic(Contestant):
    key = "dali-dynamic"
    title = "DALI dynamic mode, CPU"
    distributions = ("nvidia-dali-cuda130",)
    modules = ("nvidia.dali", "nvidia.dali.experimental.dynamic")
    pipelines = frozenset({"train", "eval", "decode"})
    scales = ("threads",)
    settings = "ndd.decoders.image_slice, ndd.resize(LINEAR, antialias), ndd.crop_mirror_normalize, on batches"

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        import nvidia.dali.experimental.dynamic as ndd
        from nvidia.dali import types

        ndd.set_num_threads(job.threads)
        pipeline = job.pipeline

        def decoded(files: Any, *box: Any) -> Any:
            if box and pipeline.name == "train":
                return ndd.decoders.image_slice(files, *box, axes=(0, 1), adjust_orientation=False)
            return ndd.decoders.image(files, adjust_orientation=False)

        def epoch(seed: int) -> Iterator[Any]:
            for items in job.batches(seed):
                files = ndd.Batch([np.fromfile(file, np.uint8) for file, _ in items])
                if pipeline.mean is None:
                    images = decoded(files).evaluate()
                    yield [from_dlpack(image).permute(2, 0, 1) for image in images]
                    continue
                corner, shape, size, *place = map(ndd.Batch, _geometry([draw for _, draw in items]))
                images = decoded(files, corner, shape)
                images = ndd.resize(images, size=size, interp_type=types.INTERP_LINEAR, antialias=True)
                images = ndd.crop_mirror_normalize(images, dtype=ndd.float32, **_finish(pipeline, *place))
                yield from_dlpack(ndd.as_tensor(images))

        yield epoch


class _Source:
    """The contents and draws of an epoch's files, batch by batch."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.seed = 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        unused = 2 if self._job.pipeline.name == "eval" else 0  # DALI warns of unused inputs
        for items in self._job.batches(self.seed):
            contents = [
                np.frombuffer(file, np.uint8) if isinstance(file, bytes) else np.fromfile(file, np.uint8)
                for file, _ in items
            ]
            yield contents, *_geometry([draw for _, draw in items])[unused:]


def _geometry(draws: list[Draw]) -> list[list[npt.NDArray[Any]]]:
    """For each image: the crop's corner and size in the source, the size to resize to, the flip, and the position of
    the window in the resized image, from 0 (left or top) to 1 (right or bottom)."""
    boxes = [draw.box or (0, 0, 1, 1) for draw in draws]
    place: list[list[float]] = [[0.5] * len(draws), [0.5] * len(draws)]
    for number, draw in enumerate(draws):
        if draw.window is not None and draw.size is not None:
            for axis in (0, 1):
                place[axis][number] = draw.window[axis] / max(draw.size[axis] - draw.window[axis + 2], 1)
    return [
        [np.array(box[:2], np.int32) for box in boxes],
        [np.array(box[2:], np.int32) for box in boxes],
        [np.array(draw.size, np.float32) for draw in draws],
        [np.array(draw.flip, np.int32) for draw in draws],
        *([np.array(at, np.float32) for at in axis] for axis in place[::-1]),
    ]


def _finish(pipeline: Pipeline, flip: Any, x: Any, y: Any) -> dict[str, Any]:
    """The arguments of ``crop_mirror_normalize``."""
    levels = {name: [255 * value for value in getattr(pipeline, name)] for name in ("mean", "std")}
    return {"output_layout": "CHW", "crop": (224, 224), "crop_pos_x": x, "crop_pos_y": y, "mirror": flip, **levels}


def _build(job: Job, source: Any) -> Any:
    """Build the pipeline of CPU operators."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.auto_aug import rand_augment

    pipeline = job.pipeline
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="nvidia.dali")  # of its rand_augment

    @pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=job.batch_size,
        num_threads=job.threads,
        device_id=None,
        prefetch_queue_depth=2,
        enable_conditionals=pipeline.name == "randaugment",
    )
    def make() -> Any:
        outputs = 5 if pipeline.name == "eval" else 7
        files, *box, size, flip, x, y = fn.external_source(
            source=source, num_outputs=outputs, batch=True, cycle="raise"
        )
        if pipeline.name == "eval":
            images = fn.decoders.image(files, output_type=types.RGB, adjust_orientation=False)
        else:
            images = fn.decoders.image_slice(files, *box, axes=(0, 1), output_type=types.RGB, adjust_orientation=False)
        images = fn.resize(images, size=size, interp_type=types.INTERP_LINEAR, antialias=True)
        if pipeline.name == "jitter":
            factors = {name: fn.random.uniform(range=(0.6, 1.4)) for name in ("brightness", "contrast", "saturation")}
            images = fn.color_twist(images, hue=fn.random.uniform(range=(-36.0, 36.0)), **factors)
        elif pipeline.name == "randaugment":
            images = rand_augment.rand_augment(images, n=2, m=9, shape=(224, 224), fill_value=0)
        return fn.crop_mirror_normalize(images, dtype=types.FLOAT, **_finish(pipeline, flip, x, y))

    made = make()
    made.build()
    return made
