"""The pixels that a plan wants of a source: decoded, taken from those kept, or black where a file cannot be read."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from accel.codec import stream_index
from accel.codec.decode import choose, decoded, region, view
from accel.codec.engines import Pixels
from accel.codec.header import Header, Raw
from accel.errors import DecodeError
from accel.options import Options
from accel.planning.plan import Decode
from accel.recipe import Source
from accel.runtime import cached, indexes, kept, planes, result_entries, result_pixels
from accel.sources import Files
from accel.system.memory import Scratch
from accel.system.replaced import replaced

room = Scratch()
_LARGE, LARGEST = 1 << 20, 1 << 26
"""Bytes of pixels that a thread decodes to the same memory: new one for each would be cleared by the system first."""


def only_decodes(source: Source) -> bool:
    """Whether ``pixels`` would decode this source by a baseline decoder, and nothing else, if its file is sound.

    The stream index that the run has is used all the same, but none that is in a cache's folder, or to be put there.
    """
    header = source.header
    if source.path is not None or source.cached is not None or source.shared or source.asked:
        return False
    plain = source.picture is None and isinstance(header, Header) and header.plain
    return plain and not (cached.in_use and indexes.has_part(source))


def which_only_decode(files: Files) -> npt.NDArray[np.bool_]:
    """Of which files ``only_decodes`` is true: bool [files]. No source is made of one, but where a cache is full."""
    which, looked = files.plain() & ~files.asked, files.made()
    if cached.in_use and which.any():
        heights, widths, _ = files.sizes()
        if indexes.may_have_part(files.selection, int((heights * widths)[which].max())):
            looked = [(place, files[place]) for place in np.flatnonzero(which).tolist()]
    for place, source in looked:
        which[place] = which[place] and only_decodes(source)
    return which


def pixels(wanted: Decode, of: int, options: Options, engine: str = "auto") -> Pixels:
    """Decode what a plan of ``of`` images wants of one source; the options say what becomes of a broken file.

    What is not decoded now is a view of pixels that are there, which nobody may change.

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
        if isinstance(source, result_pixels.Result):
            return source.region(wanted.box, wanted.channels)
        data = source.data
    except DecodeError as error:  # what was not read when it was opened is another file now, or gone
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
        return stream_index.decoded(data, source.header, wanted.box, wanted.channels, engine, key, durable, out)
    except DecodeError as error:
        if options.on_error == "raise":
            raise _failure(error, f"{source.name}: {error}", wanted, of) from error
        replaced(source.name, str(error), len(wanted.items))
    return np.zeros((*wanted.box[2:], wanted.channels), np.uint8)


def _failure(error: DecodeError, text: str, wanted: Decode, of: int) -> DecodeError:
    """The error of an image of a plan of ``of``."""
    position = wanted.items[0].position
    failure = type(error)(text + (f" (image {position} of a batch of {of})" if of > 1 else ""))
    failure.position = position
    return failure


def picture(source: Source, engine: str = "auto", *, again: bool = False) -> Pixels | None:
    """All of a file that is asked for again (or ``again`` says that it will be), decoded once and kept from then on.

    None where only what is needed is to be decoded: it is the first time, or there is no room, or some engine declines
    the whole file, whatever it makes of a region.
    """
    again = again or source.shared or source.asked > 0
    source.asked += 1
    header = source.header
    if not again or isinstance(header, Raw):
        return None
    channels = 1 if header.mode == "L" else 3

    def whole() -> Pixels | None:
        try:
            box = (0, 0, header.height, header.width)
            return decoded(source.data, header, box, channels, choose(header, engine))
        except Exception:
            return None  # the region's own decoding will tell

    return kept.pixels(source, header.height * header.width * channels, whole)
