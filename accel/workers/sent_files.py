"""A batch of files that was drawn in one go, as a worker of an accelerator's loader sends it: all in one slot.

A slot begins with a header of 1 KB, int64[128]: what ``Word`` says, and from ``Word.PARTS`` on, for each part, where it
begins in the slot (a multiple of 64) and how many bytes it has. The parts are those of ``Part``, in its order, and
behind them those of the backend (``AcceleratorBackend.ahead``): what it has computed ahead of a device, as arrays.

So the parent unpickles a few numbers a batch and no object an image: sources are made of what is pickled in
``Part.SOURCES`` only if somebody looks at one, and a backend that has computed all ahead asks for none.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.backend import AcceleratorBackend, backend_of
from accel.codec.header import Header
from accel.ops import OPS
from accel.options import Selection
from accel.planning import columns
from accel.planning.columns import ColumnPlan
from accel.rows import Ahead, Rows, Structure
from accel.runtime import cached
from accel.sources import Files
from accel.system import counters
from accel.workers import slot_pool

VERSION = 1
HEADER = 1024
ALIGNED = 64

Bytes = npt.NDArray[np.uint8]


class Word(IntEnum):
    """The words of a slot's header."""

    VERSION = 0
    PART_COUNT = 1
    CHANNELS = 2  # of the result, where the backend has computed something ahead; else 0
    HEIGHT = 3
    WIDTH = 4
    PARTS = 8


class Part(IntEnum):
    """The parts of a slot that every batch has."""

    FILES = 0  # the files, each at a multiple of 64
    PLACES = 1  # int64 [images, 2]: where in these a file begins, and its size
    SHAPES = 2  # int64 [images, 3]: height, width, and whether it is of mode "RGB"
    NUMBERS = 3  # int64 [images, columns], of the rows
    ALIKE = 4  # pickled: what all images have in common, ``_Alike``
    SOURCES = 5  # pickled: of each image the header, the name and the key


_MOST_PARTS = (HEADER // 8 - Word.PARTS) // 2


class _Alike(NamedTuple):
    structure: Structure
    selection: Selection
    dtype: torch.dtype | None  # of what was computed ahead


class SentFiles(NamedTuple):
    """What is sent of a batch: the slot."""

    data: torch.Tensor


def pack(rows: Rows) -> SentFiles | None:
    """Put rows of files into a slot, in a DataLoader worker, with what their backend computes ahead.

    None where they are not files that were read, each once, or their steps hold tensors.
    """
    sources = rows.sources
    if not len(rows) or any(OPS[form.name].holds_tensors for form in rows.structure.forms):
        return None
    selection = rows.selection
    backend = backend_of(selection)
    for source in sources:
        if not (source.is_read and isinstance(source.header, Header) and type(source.name) is str):
            return None
        if source.cached is not None or source.origin is not None or source.selection != selection:
            return None
    if not isinstance(backend, AcceleratorBackend) or not rows.each_apart():
        return None
    plan, room = None, 0
    try:
        if not cached.in_use and (plan := columns.plan(rows)) is not None:
            room = backend.room_ahead(plan)
    except Exception as error:
        _failed(error)
        room = 0
    contents = [source.data for source in sources]
    places = np.zeros((len(rows), 2), np.int64)
    places[:, 1] = [len(content) for content in contents]
    taken = -(-places[:, 1] // ALIGNED) * ALIGNED
    places[:, 0] = np.cumsum(taken) - taken
    heights, widths, colour = rows.sizes()
    shapes = np.stack([heights, widths, colour], 1).astype(np.int64)
    about = pickle.dumps([(tuple(source.header), source.name, source.key) for source in sources], -1)
    size = int(taken.sum())
    others = [places, shapes, rows.numbers]
    fixed = HEADER + size + sum(_whole(each.nbytes) for each in others) + _whole(len(about)) + _ALIKE
    data = slot_pool.shared((fixed + room,), torch.uint8)
    slot = _Slot(data.numpy())
    files = slot.take(size)
    for content, start in zip(contents, places[:, 0].tolist(), strict=True):
        files[start : start + len(content)] = np.frombuffer(content, np.uint8)
    for each in others:
        slot.put(each)
    alike = _Alike(rows.structure, selection, None)
    made: Sequence[npt.NDArray[Any]] = ()
    if plan is not None and room:
        made = _ahead(backend, plan, files, places, room)
    if plan is not None and made:
        alike = alike._replace(dtype=plan.dtype)
        slot.header[Word.CHANNELS : Word.WIDTH + 1] = plan.shape[1:]
    said = _dumped(alike)
    if _whole(len(said)) > _ALIKE:
        return None
    for content in (said, about):
        slot.put(np.frombuffer(content, np.uint8))
    for part in made:
        slot.put(part)
    return SentFiles(data)


_ALIKE = 1 << 14
"""Bytes that what all images have in common may take."""


def _ahead(
    backend: AcceleratorBackend, plan: ColumnPlan, files: Bytes, places: Any, room: int
) -> Sequence[npt.NDArray[Any]]:
    try:
        made = backend.ahead(plan, files, places)
    except Exception as error:  # the parent plans them once more, and raises it where it can be caught
        _failed(error)
        return ()
    if len(made) > _MOST_PARTS - len(Part) or sum(_whole(each.nbytes) for each in made) > room:
        counters.fallback("what a worker had planned ahead found no room beside the files; the parent planned it")
        return ()
    return made


def _failed(error: Exception) -> None:
    counters.fallback(f"a worker could not plan a batch ahead: {type(error).__name__}: {error}")


def _whole(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


class _Slot:
    """A slot that is being filled."""

    def __init__(self, memory: Bytes) -> None:
        self._memory = memory
        self.header = memory[:HEADER].view(np.int64)
        self.header[:] = 0
        self.header[Word.VERSION] = VERSION
        self._end = HEADER

    def take(self, size: int) -> Bytes:
        """The memory of the next part."""
        number = int(self.header[Word.PART_COUNT])
        where = Word.PARTS + 2 * number
        self.header[where : where + 2] = self._end, size
        self.header[Word.PART_COUNT] = number + 1
        taken = self._memory[self._end : self._end + size]
        self._end += _whole(size)
        return taken

    def put(self, part: npt.NDArray[Any]) -> None:
        self.take(part.nbytes)[:] = np.ascontiguousarray(part).reshape(-1).view(np.uint8)


@lru_cache(maxsize=64)
def _dumped(alike: _Alike) -> bytes:
    return pickle.dumps(alike, -1)


@lru_cache(maxsize=64)
def _loaded(alike: bytes) -> _Alike:
    return pickle.loads(alike)  # type: ignore[no-any-return]


def _about(pickled: Bytes) -> list[tuple[tuple[Any, ...], str, Any]]:
    return pickle.loads(pickled.data)  # type: ignore[no-any-return]


def unpack(sent: SentFiles) -> Rows:
    """The rows again, which look at the slot as long as somebody has them."""
    memory = sent.data.numpy()
    header = memory[:HEADER].view(np.int64).tolist()
    if header[Word.VERSION] != VERSION:
        raise RuntimeError(f"a worker sent a batch in format {header[Word.VERSION]}, and not in {VERSION}")
    behind = Word.PARTS + 2 * header[Word.PART_COUNT]
    starts, sizes = header[Word.PARTS : behind : 2], header[Word.PARTS + 1 : behind : 2]
    parts = [memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    structure, selection, dtype = _loaded(parts[Part.ALIKE].tobytes())
    places, shapes = (parts[part].view(np.int64).reshape(-1, width) for part, width in _TABLES)
    files = Files(parts[Part.FILES], places, shapes, selection, partial(_about, parts[Part.SOURCES]))
    numbers = parts[Part.NUMBERS].view(np.int64).reshape(len(places), structure.columns)
    rows = Rows(files, structure, numbers)
    if dtype is not None:
        shape = len(places), header[Word.CHANNELS], header[Word.HEIGHT], header[Word.WIDTH]
        rows.ahead = Ahead(shape, dtype, parts[len(Part) :])
    return rows


_TABLES = ((Part.PLACES, 2), (Part.SHAPES, 3))
