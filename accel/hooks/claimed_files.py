"""Reading files whole when they are opened, and deciding which of them accel claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PIL import Image, ImageFile

from accel import switch
from accel.codec import opening
from accel.codec.file_buffers import file_buffers
from accel.codec.header import Header, claim
from accel.codec.opening import File
from accel.options import Selection
from accel.recipe import Source
from accel.system.private_names import private
from accel.workers import reading

private("PIL.Image", "_decompression_bomb_check")


Claimed = Callable[[File], Header | None]


def read(path: Any, selection: Selection, claimed: Claimed) -> Source | None:
    """Read a file, into a worker's slot if there is one; return its source, or None if ``claimed`` gives no header."""
    into_slot = reading.current(selection)
    file = None if into_slot is None else into_slot.read(path)
    if file is None or into_slot is None:
        return source(path, opening.read_one(path), selection, claimed)
    header = claimed(file)
    return None if header is None else into_slot.kept(file, header, str(path))


def source(path: Any, file: File | None, selection: Selection, claimed: Claimed) -> Source | None:
    """The source of a file that was read; None if there is no file or ``claimed`` gives no header."""
    header = None if file is None else claimed(file)
    if file is None or header is None:
        file_buffers.give_back(file and file.buffer)
        return None
    buffer, size, key, _ = file
    return Source(memoryview(buffer)[:size].toreadonly(), header, str(path), selection, buffer, key=key)


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
