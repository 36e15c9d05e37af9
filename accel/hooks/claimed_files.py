"""Reading files when they are opened, and deciding which of them accel claims."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFile
from torch.utils.data import get_worker_info

from accel.backend import backend_of
from accel.codec.files import batch_memory, reader
from accel.codec.files import fields as of
from accel.codec.files.batch_memory import BatchMemory
from accel.codec.files.reader import File, file_buffers
from accel.codec.header import Header, claim
from accel.processes import slot_pool, switch
from accel.recipes.options import Selection
from accel.recipes.recipe import Source
from accel.recipes.sources import Files
from accel.runtime.memo import cached
from accel.system.private_names import private

private("PIL.Image", "_decompression_bomb_check")

Claimed = Callable[[File], Header | None]
"""Returns the header of a file; None for one that accel does not claim."""


def read(path: Any, selection: Selection, claimed: Claimed) -> Source | None:
    """Read a file, into its batch's memory if there is any; return its source, None if ``claimed`` gives no header."""
    slot = batch_memory.current(selection)
    file = None if slot is None else slot.read(path)
    if file is None:
        file = reader.read(path)
        if slot is not None and file is not None:
            slot.beside += file.size
        slot = None
    return _source(path, file, slot, selection, claimed)


def _source(
    path: Any, file: File | None, slot: BatchMemory | None, selection: Selection, claimed: Claimed
) -> Source | None:
    """The source of a file that was read, or None, into ``slot`` or not; None if ``claimed`` gives no header."""
    header = None if file is None else claimed(file)
    if file is None or header is None:
        file_buffers.give_back(file and file.buffer)
        return None
    if slot is None:
        data = memoryview(file.buffer)[: file.size].toreadonly()
        return Source(data, header, str(path), selection, file.buffer, key=file.key)
    data, place = slot.keep(file, header)
    source = Source(data, header, str(path), selection, place, key=file.key)
    slot.sources.append(weakref.ref(source))
    return source


def read_together(paths: Sequence[Any], selection: Selection, most: int) -> Sequence[Source | None]:
    """Read the files of a batch, all at once if possible; return their sources, None for those not claimed by Pillow's
    hook (``by_pillow``), which is asked of plain pictures only if they have more than ``most`` pixels."""
    together = batch_memory.read_together(paths, selection, _slot(selection, len(paths)), most)
    if together is None:
        return [_source(path, reader.read(path), None, selection, by_pillow) for path in paths]
    memory, table = together
    headers = _unusual_headers(memory, table, most) if table.unusual else {}
    refused = {number for number, header in headers.items() if header is None}
    own = {number: header for number, header in headers.items() if header and table.rows[number, of.STATE] != of.PLAIN}
    for number, header in own.items():
        reader.put_header(table.rows[number], header)
    end = int(table.places[-1].sum())
    files = Files(memory.content[:end], table.places, table.rows, own, paths, selection, memory)
    apart = cached.in_use and backend_of(selection).devices  # what a cache has of a file is not sent with ``Files``
    if refused or apart:
        return [None if number in refused else files[number] for number in range(len(files))]
    return files


def _unusual_headers(memory: BatchMemory, table: Any, most: int) -> dict[int, Header | None]:
    """The headers of files that are no plain JPEG files, or have more than ``most`` pixels, by their numbers; None for
    those that ``by_pillow`` refuses."""
    rows = table.rows
    unusual = (rows[:, of.STATE] == of.OTHER) | (rows[:, of.HEIGHT] * rows[:, of.WIDTH] > most)
    headers = {}
    for number in np.flatnonzero(unusual).tolist():
        (start, size), row = table.places[number].tolist(), rows[number].tolist()
        plain = reader.plain_header(row) if row[of.STATE] == of.PLAIN else None
        headers[number] = by_pillow(File(memory.content[start : start + size].tobytes(), size, None, plain))
    return headers


def into_slot(selection: Selection | None, count: int) -> AbstractContextManager[None]:
    """Have a device's files, of ``count`` samples, read into one memory in the block: a worker's slot if it has one, in
    other processes memory that a device can lock."""
    if selection is None or not count or cached.in_use or not backend_of(selection).devices:
        return nullcontext()
    slot = _slot(selection, count)
    if slot is None and get_worker_info() is not None:
        return nullcontext()
    return batch_memory.filling(slot, count, selection)


def _slot(selection: Selection, count: int) -> torch.Tensor | None:
    """A slot for a batch of so many images; None if this worker has none, or it is not known how large it must be."""
    pool = None if cached.in_use else slot_pool.of_worker()
    size = 0 if pool is None else batch_memory.slot_size(selection, count)
    return None if pool is None or not size else pool.empty((size,), torch.uint8)


def header_of(file: File) -> Header | None:
    """The header of a file that accel may claim; None for others."""
    return file.header or claim(file.buffer, file.size)


def by_pillow(file: File) -> Header | None:
    """The header of a file that ``Image.open`` returns as a lazy image; None for others."""
    header = header_of(file)
    if header is None or header.pictures or not (header.complete or claimed(header, switch.current())):
        return None
    try:
        Image._decompression_bomb_check((header.width, header.height))
    except Image.DecompressionBombError:
        return None  # Image.open raises it as well, or replaces the file
    return header


def claimed(header: Header, selection: Selection) -> bool:
    """Whether accel claims a file. An incomplete one is left to Pillow, which raises, unless it is to be replaced."""
    replaced = selection.options.on_error == "replace" and not ImageFile.LOAD_TRUNCATED_IMAGES
    return header.complete or replaced
