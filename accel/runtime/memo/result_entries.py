"""Entries of results: what their meta says, and putting them into a cache.

A result is uint8 pixels in bands of rows, found by the file's key and the exact steps. A file that is no JPEG has no
planes; all its pixels may be kept instead, as the result of no step.
"""

from __future__ import annotations

import struct
from array import array
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from accel.cache.entry import PIXELS, RESULT, Entry
from accel.cache.worth import shelf_of
from accel.codec.foreign import DECODERS
from accel.codec.header import Header, Raw
from accel.ops import OPS
from accel.planning.order import Steps
from accel.planning.prefix import pipeline, resamples, text
from accel.recipes.recipe import Source
from accel.recipes.rows import Structure
from accel.runtime.memo import cached
from accel.runtime.memo.cached import FileEntries
from accel.system import counters
from accel.system.memory import Key

_BAND, _BANDS = 1 << 15, 64
"""The approximate bytes of a band, and the most bands of a result. Only whole bands are read."""

_SMALL = 3 << 17  # bytes that any resized result may have; a larger one no more than the picture has samples
_PAYS = 1e-9  # seconds of decoding that a byte of pixels must save; reading and checking it takes a third of that
_META = struct.Struct("<BBHII")  # reference, mode, number of steps, width, height
_REFERENCES = "pillow", "torchvision", "none", *DECODERS
_MODES = "", "L", "RGB"


def size_of(raw: Raw) -> int:
    return raw.height * raw.width * raw.channels


class ResultEntry(NamedTuple):
    """An entry that is a result, the size and mode of its pixels, and the number of steps that it is the result of."""

    entry: Entry
    raw: Raw
    length: int


class Prefix:
    """The first steps on pixels of recipes, and the decoder whose pixels they begin with.

    Equal ones are the same object if the steps can be hashed (``prefix_of``).
    """

    __slots__ = ("_texts", "reference", "steps")

    def __init__(self, reference: int, steps: Steps) -> None:
        """``reference``: see ``reference_of``."""
        self.reference, self.steps = reference, steps
        self._texts: dict[int, bytes] = {}

    def text(self, count: int) -> bytes:
        """The text by which entries identify the first ``count`` steps."""
        return self._texts.get(count) or self._texts.setdefault(count, repr(self.steps[:count]).encode())


@lru_cache(maxsize=1024)
def _prefix(reference: int, steps: Steps) -> Prefix:
    return Prefix(reference, steps)


def prefix_of(reference: int, steps: Steps) -> Prefix:
    """The prefix that all these steps are."""
    try:
        return _prefix(reference, steps)
    except TypeError:  # a parameter has no hash
        return Prefix(reference, steps)


@lru_cache(maxsize=1024)
def prefix_of_row(reference: int, structure: Structure, row: tuple[int, ...]) -> Prefix:
    """The prefix that all steps of a row are."""
    return prefix_of(reference, structure.steps(row))


def reference_of(header: Header | Raw) -> int:
    """The number by which entries name the decoder whose pixels a file's recipes begin with."""
    return _REFERENCES.index(header.reference if isinstance(header, Header) else header.decoder or "none")


JPEG = _REFERENCES.index("pillow")
"""``reference_of`` a JPEG file that Pillow would open."""


def result_entry_of(known: FileEntries, prefix: Prefix) -> ResultEntry | None:
    """A result of a file that a recipe with these first steps may begin with; None if there is none."""
    if known.last[0] is not prefix:
        known.last = prefix, result_entry_in((known.result, known.pixels), prefix)
    found: ResultEntry | None = known.last[1]
    return found


def result_entry_in(entries: Sequence[Entry | None], prefix: Prefix) -> ResultEntry | None:
    """The first of the entries that is a result of some of the first steps; None if none is."""
    for entry in entries:
        if entry is None or not entry.meta.startswith(cached.tag()):
            continue
        reference, mode, count, width, height = _META.unpack_from(entry.meta, cached.MARK)
        raw = Raw(width, height, _MODES[mode])
        if reference != prefix.reference or count > len(prefix.steps) or entry.size != size_of(raw):
            continue
        if entry.meta[cached.MARK + _META.size :] == prefix.text(count):
            return ResultEntry(entry, raw, count)
    return None


def steps_of(entry: Entry) -> int:
    """The number of steps that an entry is the result of."""
    return int(_META.unpack_from(entry.meta, cached.MARK)[2])


def made_of(entry: Entry) -> tuple[str, Raw, Steps] | None:
    """The reference decoder, size and steps of a result; None if the steps cannot be parsed."""
    reference, mode, _, width, height = _META.unpack_from(entry.meta, cached.MARK)
    try:
        steps = literal_eval(entry.meta[cached.MARK + _META.size :].decode())
    except (ValueError, SyntaxError):
        return None
    return _REFERENCES[reference], Raw(width, height, _MODES[mode]), steps


class ResultSpec(NamedTuple):
    """Properties shared by all results of pictures of one size by the same steps.

    Attributes:
        raw: their size and mode. shelf: theirs in the cache (``accel.cache.worth``).
        meta: of their entries, behind ``cached.tag()``; None if a parameter of a step is no plain value.
        ends: where their bands end, in bytes. size: their bytes. length: the number of steps.
        pays: whether they are worth their bytes.
    """

    raw: Raw
    shelf: int
    meta: bytes | None
    ends: Sequence[int]
    size: int
    length: int
    pays: bool


@lru_cache(maxsize=4096)
def spec_of(prefix: Prefix, height: int, width: int, count: int) -> ResultSpec:
    """The kind of the results of a prefix of pictures of ``count`` channels."""
    steps, size = prefix.steps, (height, width)
    depth = 3 if any(name == "convert" for name, _ in steps) else count
    for name, params in steps:
        op = OPS[name]
        size, depth = op.size(size, params), op.channels(depth, params)
    raw, of_steps = Raw(size[1], size[0], "RGB" if depth == 3 else "L"), text(steps)
    own, meta = size_of(raw), None
    if of_steps is not None:
        meta = _META.pack(prefix.reference, _MODES.index(raw.mode), len(steps), raw.width, raw.height) + of_steps
    most = max(3 * height * width, _SMALL) if resamples(steps) else height * width
    pays = bool(steps) and meta is not None and own <= most
    return ResultSpec(raw, shelf_of(RESULT, pipeline((height, width), steps)), meta, _ends(raw), own, len(steps), pays)


def variant(key: Key | bytes, prefix: Prefix) -> bytes:
    """The key of a further result of a file that has one already; ``key``: the file's."""
    return cached.variant(key, bytes([prefix.reference]) + (text(prefix.steps) or b""))


def pays_as_a_whole(source: Source) -> bool:
    """Whether all pixels of a file that is no JPEG are worth their bytes; True for a JPEG, whose planes are kept.

    Decoding a BMP file takes less time than reading and checking its pixels; decoding a PNG file thirty times as much.
    """
    if isinstance(source.header, Header):
        return True
    pixels = source.header.height * source.header.width * source.header.channels
    return source.cached is not None and source.cached.seconds > _PAYS * pixels


def keep_all(source: Source) -> None:
    """Keep all pixels of a file that is no JPEG, if it is marked (``FileEntries.fills``) and there is room."""
    known, raw = source.cached, source.header
    if known is None or not known.fills or not isinstance(raw, Raw):
        return
    source.cached = replace(known, fills=False)
    content = memoryview(source.data).cast("B")
    known.cache.worth.add_result(PIXELS, 1e6 * known.seconds, content.nbytes)
    header = cached.packed(source)
    kind = spec_of(prefix_of(reference_of(raw), ()), raw.height, raw.width, raw.channels)
    if header is not None and kind.meta is not None and known.cache.room(PIXELS, content.nbytes):
        key, meta = cached.place(source.key, raw), cached.tag() + kind.meta  # type: ignore[arg-type]
        counters.count(counters.RESULTS, known.cache.put(key, header, PIXELS, content, meta, kind.ends))


def _ends(raw: Raw) -> array[int]:
    """The ends of the bands of a result, in bytes."""
    size, row = size_of(raw), raw.width * raw.channels
    band = max(max(_BAND, size // _BANDS) // row, 1) * row
    return array("I", [*range(band, size, band), size])
