"""Files that are read whole as they are opened, and which of them are accel's."""

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
    """A file of which ``claimed`` gives a header; None for others."""
    into_slot = reading.current(selection)
    file = None if into_slot is None else into_slot.read(path)
    if file is None or into_slot is None:
        return source(path, opening.read_one(path), selection, claimed)
    header = claimed(file)
    return None if header is None else into_slot.kept(file, header, str(path))


def source(path: Any, file: File | None, selection: Selection, claimed: Claimed) -> Source | None:
    """The source of a file that was read, if ``claimed`` gives a header."""
    header = None if file is None else claimed(file)
    if file is None or header is None:
        file_buffers.give_back(file and file.buffer)
        return None
    buffer, size, key, _ = file
    return Source(memoryview(buffer)[:size].toreadonly(), header, str(path), selection, buffer, key=key)


def header_of(file: File) -> Header | None:
    """The header of a file that accel may claim."""
    return file.header or claim(file.buffer, file.size)


def by_pillow(file: File) -> Header | None:
    """The header of a file that ``Image.open`` gives as a lazy image."""
    header = header_of(file)
    if header is None or header.pictures or not (header.complete or claimed(header, switch.current())):
        return None
    try:
        Image._decompression_bomb_check((header.width, header.height))
    except Image.DecompressionBombError:
        return None  # Image.open says so as well, or replaces it
    return header


def claimed(header: Header, selection: Selection) -> bool:
    """Whether a file is accel's. An incomplete one is Pillow's, which raises, unless it is to be replaced."""
    replaced = selection.options.on_error == "replace" and not ImageFile.LOAD_TRUNCATED_IMAGES
    return header.complete or replaced
