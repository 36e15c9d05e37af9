"""Loading DALI, building pipelines, keeping them for later batches of their structure, and running them.

DALI fails a whole batch if it cannot decode one image. Such a batch is run again in halves, down to that image.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import count
from types import ModuleType
from typing import Any, NamedTuple

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


# -- the pool -----------------------------------------------------------------------------------------------

_KEPT = 16
_LEAST = 16


class Sample(NamedTuple):
    """One image for a pipeline: its file's bytes or its pixels, the box to decode, and its operators' numbers."""

    source: Any
    box: tuple[int, int, int, int]
    fed: tuple[Numbers, ...]


class Outputs(NamedTuple):
    """Successive images of a batch, and DALI's list of results; None for an image that it cannot decode."""

    first: int
    images: int
    tensors: Any


class PipelinePool:
    """The pipelines of one device; threads that need the same structure at once get one each."""

    def __init__(self, make: Callable[[Structure, int], Pipeline]) -> None:
        """``make``: builds a pipeline of a structure for a number of images at a time."""
        self._make = make
        self._lock = fork.Lock()
        self._forget()
        fork.register(in_child=self._abandon)

    def _forget(self) -> None:
        self._idle: OrderedDict[Structure, list[Pipeline]] = OrderedDict()
        self._used: set[Pipeline] = set()

    def run(self, structure: Structure, samples: Sequence[Sample], first: int = 0) -> Iterator[Outputs]:
        """Run images of one structure; yield one part, or several if DALI cannot decode some of them.

        Raises:
            RuntimeError: DALI's own, for any other error.
        """
        fed = tuple(zip(*(sample.fed for sample in samples), strict=True))
        pipeline, outputs, sound = self._take(structure, len(samples)), None, False
        try:
            outputs = pipeline.run([sample.source for sample in samples], [sample.box for sample in samples], fed)
            sound = True
        except RuntimeError as error:
            sound = "decoders" in str(error)  # an image cannot be decoded, and the pipeline is still usable
            if not sound:
                raise
        finally:
            self._give_back(pipeline, sound)
        if outputs is not None or len(samples) == 1:
            yield Outputs(first, len(samples), outputs)
            return
        middle = len(samples) // 2
        yield from self.run(structure, samples[:middle], first)
        yield from self.run(structure, samples[middle:], first + middle)

    def _take(self, structure: Structure, count: int) -> Pipeline:
        with self._lock:
            idle = self._idle.get(structure, [])
            fitting = [pipeline for pipeline in idle if pipeline.most >= count]
            pipeline = fitting[-1] if fitting else None
            if pipeline is not None:
                idle.remove(pipeline)
            else:
                idle.clear()  # a larger one replaces them
        if pipeline is None:
            pipeline = self._make(structure, max(_LEAST, 1 << (count - 1).bit_length()))
        with self._lock:
            self._used.add(pipeline)
        return pipeline

    def _give_back(self, pipeline: Pipeline, sound: bool) -> None:
        """Keep a pipeline for later use, if it is sound."""
        with self._lock:
            self._used.discard(pipeline)
            if sound:
                self._idle.setdefault(pipeline.structure, []).append(pipeline)
                self._idle.move_to_end(pipeline.structure)
            while sum(map(len, self._idle.values())) > _KEPT:
                oldest = next(iter(self._idle))
                self._idle[oldest].pop(0)
                if not self._idle[oldest]:
                    del self._idle[oldest]

    def _abandon(self) -> None:
        """Keep DALI's objects for ever in a forked child, as ending them would wait for threads that it lacks."""
        for pipeline in (*self._used, *(pipeline for pipelines in self._idle.values() for pipeline in pipelines)):
            fork.leave_to_parent(pipeline)
        self._forget()
