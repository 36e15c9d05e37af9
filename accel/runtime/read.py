"""The pixels that a plan needs of a source: decoded, from kept pictures or a cache, or black if the file is broken."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from accel.codec import stream_index
from accel.codec.decode import choose, decoded, region, view
from accel.codec.engines import Pixels
from accel.codec.header import Header, Raw
from accel.errors import DecodeError
from accel.planning.plan import Decode
from accel.recipes.options import Options
from accel.recipes.recipe import Source
from accel.recipes.sources import Files
from accel.runtime import picture_memory
from accel.runtime.memo import cached, indexes, planes, result_entries, result_pixels
from accel.system.memory import Scratch
from accel.system.replaced import replaced

room = Scratch()
_LARGE, LARGEST = 1 << 20, 1 << 26
"""Bytes of pixels, at least and at most, for which a thread reuses memory: the system would clear new memory first."""


def only_decodes(source: Source) -> bool:
    """Whether ``pixels`` would only decode this source, by a baseline decoder, if its file is sound.

    The run's stream index may be used for that, but none in a cache's folder may be read or written.
    """
    header = source.header
    if source.path is not None or source.cached is not None or source.shared or source.uses:
        return False
    plain = source.picture is None and isinstance(header, Header) and header.plain
    return plain and not (cached.in_use and indexes.has_part(source))


def which_only_decode(files: Files) -> npt.NDArray[np.bool_]:
    """``only_decodes`` for each file: bool [files]. Sources are made of the files only if a cache is full."""
    which, looked = files.plain() & ~files.uses, files.made()
    if cached.in_use and which.any():
        heights, widths, _ = files.sizes()
        if indexes.may_have_part(files.selection, int((heights * widths)[which].max())):
            looked = [(place, files[place]) for place in np.flatnonzero(which).tolist()]
    for place, source in looked:
        which[place] = which[place] and only_decodes(source)
    return which


def pixels(wanted: Decode, of: int, options: Options, engine: str = "auto") -> Pixels:
    """Decode the region of one source that a plan of ``of`` images needs; options say what becomes of a broken file.

    The result may be a view of existing pixels, which must not be changed.

    Raises:
        DecodeError: under ``on_error="raise"``; names the file, the image's place in the batch and the reason.
    """
    source = wanted.source
    try:
        if source.cached is not None and source.picture is None and not isinstance(source.header, Raw):
            found = planes.region(source, wanted.box, wanted.channels)
            if found is None:
                found = planes.decoded(source, wanted.box, wanted.channels, engine)
            if found is not None:
                return found
        whole = picture(source, engine)
        if isinstance(source, result_pixels.StoredResult):
            return source.region(wanted.box, wanted.channels)
        data = source.data
    except DecodeError as error:  # the file was not read when it was opened, and is another one now, or gone
        raise _failure(error, str(error), wanted, of) from error
    if isinstance(source.header, Raw):
        result_entries.keep_all(source)
        return view(data, source.header, wanted.box, wanted.channels)
    if whole is not None:
        return region(whole, wanted.box, wanted.channels)
    try:
        key = None if options.cache is None else source.key
        durable = indexes.of(source) if cached.in_use else None
        shape = (*wanted.box[2:], wanted.channels)
        size = math.prod(shape)
        out = room.take(size).reshape(shape) if _LARGE <= size <= LARGEST else None
        box, channels, name = wanted.box, wanted.channels, source.name
        return stream_index.decoded(data, source.header, box, channels, engine, key, durable, out, name)
    except DecodeError as error:
        if options.on_error == "raise":
            raise _failure(error, f"{source.name}: {error}", wanted, of) from error
        replaced(source.name, str(error), len(wanted.items))
    return np.zeros((*wanted.box[2:], wanted.channels), np.uint8)


def _failure(error: DecodeError, text: str, wanted: Decode, of: int) -> DecodeError:
    """The error of an image in a plan of ``of`` images, with its position."""
    position = wanted.items[0].position
    failure = type(error)(text + (f" (image {position} of a batch of {of})" if of > 1 else ""))
    failure.position = position
    return failure


def picture(source: Source, engine: str = "auto", *, again: bool = False) -> Pixels | None:
    """The whole picture of a file that is asked for again, or will be if ``again``: decoded once, and kept.

    None if only the region is to be decoded: it is the first time, there is no room, or the whole cannot be decoded.
    """
    again = again or source.shared or source.uses > 0
    source.uses += 1
    header = source.header
    if not again or isinstance(header, Raw):
        return None

    def whole() -> Pixels | None:
        try:
            box = (0, 0, header.height, header.width)
            return decoded(source.data, box, header.channels, choose(header, engine))
        except Exception:
            return None  # decoding the region will raise it

    return picture_memory.pixels(source, header.height * header.width * header.channels, whole)
