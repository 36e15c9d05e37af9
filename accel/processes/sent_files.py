"""A batch of files with the same steps, as a worker of an accelerator's loader sends it: all in one slot.

A slot begins with a header of 1 KB, int64[128]: the words of ``Word``, and from ``Word.SECTIONS`` on, for each section,
its offset in the slot (a multiple of 64) and its size in bytes. The sections are those of ``Section``, in its order,
followed by those of the backend: the arrays that it has computed ahead of a device (``AcceleratorBackend.ahead``).

So the parent unpickles a few numbers per batch and no object per image: sources are made only on access, and a backend
that has computed everything ahead needs none. The worker makes none either, if the files were read into the slot
(``codec.files.batch_memory``).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.backend import AcceleratorBackend, backend_of
from accel.codec.files import batch_memory
from accel.codec.files import fields as of
from accel.codec.files.batch_memory import HEADER
from accel.codec.files.fields import ALIGNED
from accel.codec.header import Header
from accel.ops import OPS
from accel.planning import columns
from accel.planning.order import has_tail, parts
from accel.planning.plan import Plan, plans_of
from accel.processes import slot_pool, uses
from accel.recipes.arrived import Ahead, Arrived, Assorted
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source, Step, selection_of, ways_of
from accel.recipes.rows import Rows, Structure, then
from accel.recipes.sources import Files, Sources, encoded, known_of
from accel.runtime.memo import cached
from accel.system import counters
from accel.system.page_locks import Block

VERSION = 6
Bytes = npt.NDArray[np.uint8]


class Word(IntEnum):
    """The words of a slot's header."""

    VERSION = 0
    SECTION_COUNT = 1
    SECTIONS = 2


class Section(IntEnum):
    """The sections of a slot that every batch has."""

    FILES = 0  # the files, each at a multiple of 64
    PLACES = 1  # int64 [images, 2]: a file's offset in these, and its size
    KNOWN = 2  # int64 [images, FIELDS]: a file's fields (``codec.files.fields``)
    NUMBERS = 3  # int64 [images, columns]: the rows' numbers; or pickled: the steps of images without a structure
    NAMES = 4  # the files' names, separated by zeros
    HEADERS = 5  # pickled: headers of files that are no plain JPEG files, by their numbers; empty: there are none
    ALIKE = 6  # pickled: the data that all images have in common, ``_Alike``


_MOST_SECTIONS = (HEADER // 8 - Word.SECTIONS) // 2
_BEHIND = int(Word.SECTIONS) + 2 * len(Section)  # the word where the list of the backend's sections begins
_ALIKE_AT = int(Word.SECTIONS) + 2 * int(Section.ALIKE)


class _Alike(NamedTuple):
    structure: Structure | None  # None: the images have none in common
    selection: Selection
    way: str  # how the images were recorded
    dtype: torch.dtype | None  # the result's, if something was computed ahead; for that, what follows as well
    size: tuple[int, ...]  # channels, height and width of the result
    interleaved: bool
    casts: tuple[Step, ...]


class SentFiles(NamedTuple):
    """A batch as it is sent: its slot. If slots are shared, it is unpickled as the rows (``arrived``)."""

    data: torch.Tensor


def pack(recipes: Sequence[Recipe], interleaved: bool = False, whole: bool = True) -> SentFiles | None:
    """Put recipes of files into a slot, in a DataLoader worker, with the parts that their backend computes ahead.

    Their results are to lie ``interleaved`` in memory, unless the loader's batches are known to be used otherwise.
    Nothing is computed ahead for recipes that are not used as a ``whole``.

    None if they are not recipes of distinct files that were read, have tensors as parameters, or have no structure in
    common and are not computed ahead.
    """
    found = _files(recipes)
    if found is None:
        return None
    files, sources, rows = found
    selection = files.selection
    backend: Any = backend_of(selection)
    interleaved, casts = uses.expected() or (interleaved, ())
    planned = then(recipes if rows is None else rows, casts)
    plan, room = _planned(backend, files, planned, interleaved) if whole else (None, 0)
    if rows is None and plan is None:
        return None
    headers = np.frombuffer(pickle.dumps(files.headers, -1) if files.headers else b"", np.uint8)
    numbers = (
        np.frombuffer(pickle.dumps([each.steps for each in recipes], -1), np.uint8) if rows is None else rows.numbers
    )
    own: list[npt.NDArray[Any]] = [files.places, files.known, numbers, encoded(files.names), headers]
    size = len(files.content) or int(files.places[-1].sum())
    total = HEADER + _whole(size) + sum(_whole(part.nbytes) for part in own) + _ALIKE + room
    batch_memory.note(selection, len(files), total)
    data = None if files.memory is None else files.memory.hand_over(total)
    in_place = data is not None
    if data is None:
        data = slot_pool.empty((batch_memory.rounded(total),), torch.uint8)
    slot = _SlotWriter(data.numpy())
    content = slot.take(size)
    if not in_place:
        for (begin, length), source in zip(files.places.tolist(), sources, strict=True):
            content[begin : begin + length] = np.frombuffer(source.data, np.uint8)
        files.content, files.memory = content, None  # the plan refers to the content
    structure, way = None if rows is None else rows.structure, next(iter(ways_of(recipes)))
    alike = _Alike(structure, selection, way, None, (), interleaved, casts)
    ahead: Sequence[npt.NDArray[Any]] = ()
    if plan is not None and (ahead := _ahead(backend, plan, files, room)):
        alike = alike._replace(dtype=plan.dtype, size=plan.shape[1:])
    common = _dumped(alike)
    if _whole(len(common)) > _ALIKE:
        return None
    for part in (*own, np.frombuffer(common, np.uint8), *ahead):
        slot.put(part)
    return SentFiles(data)


def _planned(
    backend: AcceleratorBackend, files: Files, recipes: Sequence[Recipe], interleaved: bool
) -> tuple[Plan | None, int]:
    """The plan that a backend computes ahead, and the bytes that it needs for that; None and 0: nothing is computed."""
    plan: Plan | None = None
    room = 0
    try:
        if not cached.in_use and not has_tail(recipes):
            plan = columns.plan(recipes, interleaved=interleaved) if isinstance(recipes, Rows) else None
            if plan is None:
                images = [(source, *parts(steps)) for source, steps in recipes]
                (plan, _), *others = plans_of(images, (interleaved,) * len(images))
                plan = None if others else plan
            room = 0 if plan is None else backend.room_ahead(plan, files)
    except Exception as error:
        _failed(error)
        room = 0
    return (plan, room) if room else (None, 0)


def _hold_tensors(steps: Iterable[tuple[Any, ...]]) -> bool:
    """Whether there are tensors among the parameters of steps."""
    return any(OPS[name].holds_tensors for name, *_ in steps)


def holds_tensors(structure: Structure) -> bool:
    """Whether there are tensors among the parameters of steps."""
    return _hold_tensors(structure.forms)


def _files(recipes: Sequence[Recipe]) -> tuple[Files, Sequence[Source], Rows | None] | None:
    """The distinct files of recipes for an accelerator, their sources, and the recipes as rows; None for other ones."""
    if not len(recipes) or not isinstance(backend_of(selection := selection_of(recipes)), AcceleratorBackend):
        return None
    rows = recipes if isinstance(recipes, Rows) else Rows.of(recipes)
    if holds_tensors(rows.structure) if rows is not None else any(_hold_tensors(each.steps) for each in recipes):
        return None
    if rows is not None and isinstance(rows.sources, Files):
        return rows.sources, rows.sources, rows
    sources = [recipe.source for recipe in recipes] if rows is None else rows.sources
    if isinstance(sources, Sources) or len(set(map(id, sources))) < len(sources):
        return None
    files = _described(sources, selection)
    if files is None:
        return None
    return files, sources, None if rows is None else Rows(files, rows.structure, rows.numbers)


def _described(sources: Sequence[Source], selection: Selection) -> Files | None:
    """Sources as ``Files``, without content yet unless all lie in one slot; None if any is not a file that was read."""
    if (files := Files.of(sources)) is not None and files.selection == selection:
        return files
    known, headers = [], {}
    for number, source in enumerate(sources):
        header, name = source.header, source.name
        if not (source.is_read and isinstance(header, Header) and type(name) is str and "\0" not in name):
            return None
        if source.cached is not None or source.origin is not None or source.selection != selection:
            return None
        known.append(known_of(source, header))
        if known[-1][of.STATE] != of.PLAIN:
            headers[number] = header
    table = np.array(known, np.int64)
    names = [source.name for source in sources]
    return Files(np.zeros(0, np.uint8), batch_memory.places_of(table[:, of.READ]), table, headers, names, selection)


_ALIKE = 1 << 14
"""The most bytes of the pickled ``_Alike``."""


def _ahead(backend: AcceleratorBackend, plan: Plan, files: Files, room: int) -> Sequence[npt.NDArray[Any]]:
    try:
        made = backend.ahead(plan, files)
    except Exception as error:  # the parent plans them again, and raises it where the user can catch it
        _failed(error)
        return ()
    if len(made) > _MOST_SECTIONS - len(Section) or sum(_whole(each.nbytes) for each in made) > room:
        counters.fallback("what a worker had planned ahead found no room beside the files; the parent planned it")
        return ()
    return made


def _failed(error: Exception) -> None:
    counters.fallback(f"a worker could not plan a batch ahead: {type(error).__name__}: {error}")


def _whole(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


class _SlotWriter:
    """A slot that is being filled, section by section."""

    def __init__(self, memory: Bytes) -> None:
        self._memory = memory
        self.header = memory[:HEADER].view(np.int64)
        self.header[:] = 0
        self.header[Word.VERSION] = VERSION
        self._end = HEADER

    def take(self, size: int) -> Bytes:
        """The memory of the next section."""
        number = int(self.header[Word.SECTION_COUNT])
        where = Word.SECTIONS + 2 * number
        self.header[where : where + 2] = self._end, size
        self.header[Word.SECTION_COUNT] = number + 1
        part = self._memory[self._end : self._end + size]
        self._end += _whole(size)
        return part

    def put(self, part: npt.NDArray[Any]) -> None:
        self.take(part.nbytes)[:] = np.ascontiguousarray(part).reshape(-1).view(np.uint8)


@lru_cache(maxsize=64)
def _dumped(alike: _Alike) -> bytes:
    return pickle.dumps(alike, -1)


@lru_cache(maxsize=64)
def _loaded(alike: bytes) -> _Alike:
    return pickle.loads(alike)  # type: ignore[no-any-return]


def unpack(sent: SentFiles | Sequence[Recipe]) -> Sequence[Recipe]:
    """Unpack the recipes, which keep the slot in use as long as they exist."""
    return _recipes(sent.data.numpy(), None) if isinstance(sent, SentFiles) else sent


def arrived(*sent: int) -> Sequence[Recipe]:
    """The recipes in a slot (``slot_pool.received``), in the parent."""
    lease, block = slot_pool.received(*sent)
    return _recipes(np.frombuffer(lease.data, np.uint8), block)  # a plain view would not keep the lease alive


def _recipes(memory: Bytes, block: Block | None) -> Sequence[Recipe]:
    header = memory[: 8 * _BEHIND].view(np.int64).tolist()
    if header[Word.VERSION] != VERSION:
        raise RuntimeError(f"a worker sent a batch in format {header[Word.VERSION]}, and not in {VERSION}")
    start, size = header[_ALIKE_AT : _ALIKE_AT + 2]
    structure, selection, way, dtype, size_of_each, interleaved, casts = _loaded(memory[start : start + size].tobytes())
    rest = partial(_rest, memory, header, structure, selection, way)
    if dtype is None:
        return rest()
    images = header[Word.SECTIONS + 2 * Section.PLACES + 1] // 16
    shape: Any = (images, *size_of_each)
    files = header[Word.SECTIONS + 2 * Section.FILES]
    return Arrived(Ahead(shape, dtype, interleaved, casts, memory, _BEHIND, files, selection, way, block), rest)


def _rest(
    memory: Bytes, header: Sequence[int], structure: Structure | None, selection: Selection, way: str
) -> Rows | Assorted:
    listed = header[Word.SECTIONS :]
    own = [memory[start : start + size] for start, size in zip(listed[::2], listed[1::2], strict=True)]
    places = own[Section.PLACES].view(np.int64).reshape(-1, 2)
    known = own[Section.KNOWN].view(np.int64).reshape(-1, of.FIELDS)
    headers = pickle.loads(own[Section.HEADERS].data) if len(own[Section.HEADERS]) else {}
    files = Files(own[Section.FILES], places, known, headers, own[Section.NAMES], selection)
    files.way = way
    if structure is None:
        return Assorted(files, pickle.loads(own[Section.NUMBERS].data))
    return Rows(files, structure, own[Section.NUMBERS].view(np.int64).reshape(len(places), structure.columns))
