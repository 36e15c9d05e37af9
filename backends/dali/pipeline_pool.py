"""Built pipelines, kept for later batches of the same structure, and running batches in which an image fails.

DALI fails a whole batch if it cannot decode one image. Such a batch is run again in halves, down to that image.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from accel.backends.dali.operator_chain import Numbers, Structure
from accel.backends.dali.pipeline import Pipeline
from accel.system import fork

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
