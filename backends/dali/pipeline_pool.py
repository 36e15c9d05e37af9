"""Built pipelines, kept for the next batch of the same structure, and batches in which an image fails.

DALI stops a whole batch for one image that it cannot decode. Such a batch is run again in halves, down to that image.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from accel.system import fork

from .graph import Graph, cannot_decode
from .program import Numbers, Structure

_KEPT = 16
_LEAST = 16


class Row(NamedTuple):
    """One image for a pipeline: its file's bytes or its pixels, what is decoded of it, and its operators' numbers."""

    source: Any
    box: tuple[int, int, int, int]
    fed: tuple[Numbers, ...]


class Part(NamedTuple):
    """Some successive images of a batch, and DALI's list of what they have become; None: of one it cannot decode."""

    first: int
    images: int
    outputs: Any


class Pipelines:
    """The pipelines of one device; threads that want the same one at once get one each."""

    def __init__(self, make: Callable[[Structure, int], Graph]) -> None:
        """``make``: builds a pipeline of a structure for so many images at a time."""
        self._make = make
        self._lock = fork.Lock()
        self._forget()
        fork.register(in_child=self._abandon)

    def _forget(self) -> None:
        self._idle: OrderedDict[Structure, list[Graph]] = OrderedDict()
        self._used: set[Graph] = set()

    def run(self, structure: Structure, rows: Sequence[Row]) -> list[Part]:
        """Run images of one structure: one part, or several where DALI cannot decode some of them.

        Raises:
            RuntimeError: DALI's own, of anything else.
        """
        return list(self._run(structure, rows, 0))

    def _run(self, structure: Structure, rows: Sequence[Row], first: int) -> Iterator[Part]:
        try:
            with self._taken(structure, len(rows)) as graph:
                fed = tuple(zip(*(row.fed for row in rows), strict=True))
                outputs = graph.run([row.source for row in rows], [row.box for row in rows], fed)
        except RuntimeError as error:
            if not cannot_decode(error):
                raise
            outputs = None
        if outputs is not None or len(rows) == 1:
            yield Part(first, len(rows), outputs)
            return
        middle = len(rows) // 2
        yield from self._run(structure, rows[:middle], first)
        yield from self._run(structure, rows[middle:], first + middle)

    @contextmanager
    def _taken(self, structure: Structure, count: int) -> Iterator[Graph]:
        """A pipeline for so many images; it is kept afterwards, also where DALI could not decode an image."""
        graph = self._take(structure, count)
        try:
            yield graph
        except RuntimeError as error:
            if not cannot_decode(error):
                self._drop(graph)
                raise
            self._keep(graph)
            raise
        except BaseException:
            self._drop(graph)
            raise
        else:
            self._keep(graph)

    def _take(self, structure: Structure, count: int) -> Graph:
        with self._lock:
            idle = self._idle.get(structure, [])
            fitting = [graph for graph in idle if graph.most >= count]
            graph = fitting[-1] if fitting else None
            if graph is not None:
                idle.remove(graph)
            else:
                idle.clear()  # larger ones take their places
        if graph is None:
            graph = self._make(structure, max(_LEAST, 1 << (count - 1).bit_length()))
        with self._lock:
            self._used.add(graph)
        return graph

    def _keep(self, graph: Graph) -> None:
        with self._lock:
            self._used.discard(graph)
            self._idle.setdefault(graph.structure, []).append(graph)
            self._idle.move_to_end(graph.structure)
            while sum(map(len, self._idle.values())) > _KEPT:
                oldest = next(iter(self._idle))
                self._idle[oldest].pop(0)
                if not self._idle[oldest]:
                    del self._idle[oldest]

    def _drop(self, graph: Graph) -> None:
        with self._lock:
            self._used.discard(graph)

    def _abandon(self) -> None:
        """In a forked child: keep DALI's objects for ever, for to end them is to wait for threads that are not here."""
        for graph in (*self._used, *(graph for graphs in self._idle.values() for graph in graphs)):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(graph))
        self._forget()
