"""Building and running DALI pipelines, and loading DALI."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Sequence
from functools import cache, partial
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np
import torch

from accel.backends.dali.operator_chain import Numbers, Structure
from accel.backends.dali.operators import OPERATORS, Kit
from accel.system import fork
from accel.system.imports import importing

_REGION = ("start", "shape")
_loaded_in: int | None = None


def forked() -> bool:
    """Whether this process was forked after DALI was loaded, and so has none of DALI's threads."""
    return _loaded_in is not None and _loaded_in != os.getpid()


@cache
def _dali() -> ModuleType:
    global _loaded_in
    # DALI reads this once. Without it every buffer gets new pages from the system for each batch, which is 10% slower
    os.environ.setdefault("DALI_MALLOC_POOL_THRESHOLD", str(1 << 20))
    with importing, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # DALI's warnings about its own imports
        import nvidia.dali as dali
        from nvidia.dali import fn, types  # noqa: F401
    _loaded_in = os.getpid()
    fork.register(in_child=partial(_leave_alone, dali.pipeline))
    return dali  # type: ignore[no-any-return]


def _leave_alone(pipeline: ModuleType) -> None:
    """Keep DALI from ending its parent's pipelines when a forked child exits."""
    atexit.unregister(getattr(pipeline, "_shutdown_pipelines", _leave_alone))


class Pipeline:
    """A built pipeline for up to ``most`` images at a time. Only one thread may use it at a time."""

    def __init__(self, structure: Structure, most: int, device: int | None, threads: int, hw_load: float) -> None:
        """``device``: a GPU's index; None for DALI's CPU operators."""
        self.structure = structure
        self.most = most
        self._on_host = device is None
        self._inputs = [each for name, _ in structure.operators for each in OPERATORS[name].inputs]
        dali = _dali()
        # a pipeline's threads run one batch at a time, so several batches at once need several pipelines
        self._pipeline = dali.Pipeline(
            batch_size=most, num_threads=threads, device_id=device, prefetch_queue_depth=1, exec_dynamic=True
        )
        with self._pipeline:
            self._pipeline.set_outputs(self._define(dali, hw_load))
        self._pipeline.build()

    def _define(self, dali: Any, hw_load: float) -> Any:
        fn, types = dali.fn, dali.types
        on_host, channels = self._on_host, self.structure.channels
        shared = {"batch": True, "no_copy": on_host}  # a GPU may still read after the run has returned
        if self.structure.source == "jpeg":
            files = fn.external_source(name="source", dtype=types.UINT8, ndim=1, **shared)
            start, shape = (fn.external_source(name=name, dtype=types.INT32, ndim=1, batch=True) for name in _REGION)
            x = fn.decoders.image_slice(
                files,
                device="cpu" if on_host else "mixed",
                start=start,
                shape=shape,
                axes=(0, 1),
                output_type=types.GRAY if channels == 1 else types.RGB,
                adjust_orientation=False,
                jpeg_fancy_upsampling=True,
                **({} if on_host else {"hw_decoder_load": hw_load}),
            )
        else:
            x = fn.external_source(name="source", dtype=types.UINT8, layout="HWC", **shared)
            x = x if on_host else x.gpu()
        kit, numbers = Kit(fn, types, dali.math, on_host), count()
        for name, static in self.structure.operators:
            fed = []
            for each in OPERATORS[name].inputs:
                kind = {"dtype": types.to_dali_type(each.dtype), "ndim": min(abs(each.length), 1)}
                fed.append(fn.external_source(name=str(next(numbers)), batch=True, **kind))
            x = OPERATORS[name].make(kit, x, static, fed)
        return x

    def run(self, sources: Sequence[Any], boxes: Sequence[Sequence[int]], fed: Sequence[Sequence[Numbers]]) -> Any:
        """Run a batch.

        Args:
            sources: for each image the file's bytes, or its pixels.
            boxes: the part of each file that is decoded; ignored for pixels.
            fed: for each input of the operators, a row for each image.

        Returns:
            DALI's list of tensors, new for every run: on the host or, in the order of torch's current stream, on the
            GPU.

        Raises:
            RuntimeError: DALI's own, for example if it cannot decode an image.
        """
        pipeline = self._pipeline
        if self.structure.source == "jpeg":
            region = np.array(boxes, np.int32)
            pipeline.feed_input("source", [np.frombuffer(data, np.uint8) for data in sources])
            pipeline.feed_input(_REGION[0], np.ascontiguousarray(region[:, :2]))
            pipeline.feed_input(_REGION[1], np.ascontiguousarray(region[:, 2:]))
        else:
            pipeline.feed_input("source", list(sources))
        for number, (each, rows) in enumerate(zip(self._inputs, fed, strict=True)):
            pipeline.feed_input(str(number), each.batch(rows))
        if self._on_host:
            return pipeline.run()[0]
        return pipeline.run(torch.cuda.current_stream())[0]
