"""DALI's dynamic mode: the same operators called one by one, on batches, with its CPU operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch.utils.dlpack import from_dlpack

from bench.contestants.contestant import Contestant, Epoch
from bench.contestants.dali import geometry
from bench.job import Job


class DaliDynamic(Contestant):
    key = "dali-dynamic"
    title = "DALI dynamic mode, CPU"
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

        def decoded(files: Any, corner: Any, shape: Any) -> Any:
            if pipeline.name == "train":
                return ndd.decoders.image_slice(files, corner, shape, axes=(0, 1), adjust_orientation=False)
            return ndd.decoders.image(files, adjust_orientation=False)

        def epoch(seed: int) -> Iterator[Any]:
            for items in job.batches(seed):
                files = ndd.Batch([np.fromfile(file, np.uint8) for file, _ in items])
                if pipeline.mean is None:
                    images = decoded(files, None, None).materialize()
                    yield [from_dlpack(image).permute(2, 0, 1) for image in images]
                    continue
                corner, shape, size, flip, x, y = map(ndd.Batch, geometry([draw for _, draw in items]))
                images = ndd.resize(
                    decoded(files, corner, shape), size=size, interp_type=types.INTERP_LINEAR, antialias=True
                )
                images = ndd.crop_mirror_normalize(
                    images,
                    dtype=ndd.float32,
                    output_layout="CHW",
                    crop=(224, 224),
                    crop_pos_x=x,
                    crop_pos_y=y,
                    mirror=flip,
                    mean=[255 * value for value in pipeline.mean],
                    std=[255 * value for value in pipeline.std or ()],
                )
                yield from_dlpack(ndd.as_tensor(images))

        yield epoch
