"""Entries of results: what their meta says, and putting them into a cache.

A result is uint8 pixels in bands of rows, found by the file's key and the exact steps. A file that is no JPEG has no
planes; all its pixels may be kept instead, as the result of no step.
"""

from __future__ import annotations

import struct
from array import array
from ast import literal_eval
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from accel.cache.entry import PIXELS, RESULT, Entry, Given
from accel.cache.worth import shelf_of
from accel.codec.foreign import DECODERS
from accel.codec.header import Header, Raw
from accel.ops import OPS
from accel.planning.order import Steps
from accel.planning.prefix import pipeline, resamples, text
from accel.recipe import Recipe, Source
from accel.rows import Structure
from accel.runtime import cached
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
    """The bytes of the pixels."""
    return raw.height * raw.width * raw.channels


class Found(NamedTuple):
    """An entry that is a result, the size and mode of its pixels, and the number of steps that it is the result of."""

    entry: Entry
    raw: Raw
    length: int


class Beginning:
    """The steps on pixels that a recipe begins with, and the text by which entries identify the first ``count``."""

    __slots__ = ("_told", "steps")

    def __init__(self, on_pixels: Steps) -> None:
        self.steps = on_pixels
        self._told: dict[int, bytes] = {}

    def told(self, count: int) -> bytes:
        return self._told.get(count) or self._told.setdefault(count, repr(self.steps[:count]).encode())


def found_of(source: Source, begins: Beginning, *entries: Entry | None) -> Found | None:
    """The first of the entries that is a result of the recipe's first steps; None if none is."""
    for entry in entries:
        raw = None if entry is None else _fits(source, begins, entry)
        if entry is not None and raw is not None:
            return Found(entry, raw, steps_of(entry))
    return None


def steps_of(entry: Entry) -> int:
    """The number of steps that an entry is the result of."""
    return int(_META.unpack_from(entry.meta, cached.MARK)[2])


def _fits(source: Source, begins: Beginning, entry: Entry) -> Raw | None:
    """The size and mode of an entry's pixels, if it is a result of the first steps; else None."""
    if not entry.meta.startswith(cached.tag()):
        return None
    reference, mode, count, width, height = _META.unpack_from(entry.meta, cached.MARK)
    if reference != _reference(source) or count > len(begins.steps):
        return None
    if entry.meta[cached.MARK + _META.size :] != begins.told(count):
        return None
    raw = Raw(width, height, _MODES[mode])
    return raw if entry.size == size_of(raw) else None


def variant(source: Source, steps: Steps) -> bytes:
    """The key of a further result of a file that has one already."""
    return cached.variant(
        cached.place(source), bytes([_reference(source)]) + (kind_of(Recipe(source, steps)).text or b"")
    )


def made_of(entry: Entry) -> tuple[str, Raw, Steps] | None:
    """The reference decoder, size and steps of a result; None if the steps cannot be parsed."""
    reference, mode, _, width, height = _META.unpack_from(entry.meta, cached.MARK)
    try:
        steps = literal_eval(entry.meta[cached.MARK + _META.size :].decode())
    except (ValueError, SyntaxError):
        return None
    return _REFERENCES[reference], Raw(width, height, _MODES[mode]), steps


def _reference(source: Source) -> int:
    header = source.header
    return _REFERENCES.index(header.reference if isinstance(header, Header) else header.decoder or "none")


class Kind(NamedTuple):
    """Properties shared by all results of pictures of one size by the same steps.

    ``shelf``: theirs in the cache. ``text``: the steps; None if a parameter is no plain value.
    ``resized``: whether a resize is among them.
    """

    raw: Raw
    shelf: int
    text: bytes | None
    resized: bool


def kind_of(before: Recipe) -> Kind:
    """The kind of the result of a recipe."""
    (width, height, *_), steps = before.source.header, before.steps
    given = height, width, before.source.header.channels, steps
    try:
        return _kind(*given)
    except TypeError:  # a parameter has no hash
        return _kind.__wrapped__(*given)


@lru_cache(maxsize=4096)
def _kind(height: int, width: int, count: int, steps: Steps) -> Kind:
    size, depth = (height, width), 3 if any(name == "convert" for name, _ in steps) else count
    for name, params in steps:
        op = OPS[name]
        size, depth = op.size(size, params), op.channels(depth, params)
    raw = Raw(size[1], size[0], "RGB" if depth == 3 else "L")
    return Kind(raw, shelf_of(RESULT, pipeline((height, width), steps)), text(steps), resamples(steps))


def is_worth_it(before: Recipe) -> bool:
    """Whether to keep the result of a recipe: it has steps, and few enough pixels to be worth their bytes."""
    (width, height, *_), kind = before.source.header, kind_of(before)
    return bool(before.steps) and _pays(kind, height * width)


def _pays(kind: Kind, pixels: int) -> bool:
    """Whether to keep results of a kind, made of pictures of ``pixels`` pixels."""
    own = size_of(kind.raw)
    return kind.text is not None and own <= (max(3 * pixels, _SMALL) if kind.resized else pixels)


def pays_as_a_whole(source: Source) -> bool:
    """Whether all pixels of a file that is no JPEG are worth their bytes; True for a JPEG, whose planes are kept.

    Decoding a BMP file takes less time than reading and checking its pixels; decoding a PNG file thirty times as much.
    """
    if isinstance(source.header, Header):
        return True
    pixels = source.header.height * source.header.width * source.header.channels
    return source.cached is not None and source.cached.seconds > _PAYS * pixels


def keep_all(source: Source) -> None:
    """Keep all pixels of a file that is no JPEG, if it is marked (``Known.fills``) and there is room."""
    known, raw = source.cached, source.header
    if known is None or not known.fills or not isinstance(raw, Raw):
        return
    source.cached = known._replace(fills=False)
    content = memoryview(source.data).cast("B")
    known.cache.worth.made(PIXELS, 1e6 * known.seconds, content.nbytes)
    if known.cache.room(PIXELS, content.nbytes):
        put([(Recipe(source, ()), cached.place(source), raw)], PIXELS, content)


class Told(NamedTuple):
    """The entry to put in for results of JPEG pictures of one size by the same steps.

    ``said``: its meta without the versions; None if it is not worth keeping. ``ends``: where its bands end.
    """

    raw: Raw
    shelf: int
    said: bytes | None
    ends: Sequence[int]


@lru_cache(maxsize=4096)
def told(structure: Structure, height: int, width: int, count: int, row: tuple[int, ...]) -> Told:
    """Describe the entry of a result of pictures of ``count`` channels by all steps of a row, at least one."""
    steps = structure.steps(row)
    raw, shelf, as_text, _ = kind = _kind(height, width, count, steps)
    said = None
    if as_text is not None and _pays(kind, height * width):
        said = _packed(_REFERENCES.index("pillow"), raw, steps, as_text)
    return Told(raw, shelf, said, _ends(raw))


def put(results: Sequence[tuple[Recipe, Key | bytes, Raw]], shelf: int, content: memoryview) -> None:
    """Keep results, given with their keys and sizes, whose pixels lie side by side in ``content``."""
    cache = cached.of(results[0][0].source.selection.options)
    files: list[Given] = []
    for (source, steps), key, raw in results:
        header, said = cached.packed(source), _said(source, steps, raw)
        if header is not None and said is not None:
            files.append((key, header, said, _ends(raw)))
    if cache is None or len({each[0] for each in files}) < len(results):  # a file came twice, or cannot be kept
        for each in results if cache is not None and len(results) > 1 else ():
            size = size_of(each[-1])
            put([each], shelf, content[:size])
            content = content[size:]
        return
    counters.count(counters.RESULTS, sum(cache.put_all(files, shelf, content)))


def _ends(raw: Raw) -> array[int]:
    """The ends of the bands of a result, in bytes."""
    size, row = size_of(raw), raw.width * raw.channels
    band = max(max(_BAND, size // _BANDS) // row, 1) * row
    return array("I", [*range(band, size, band), size])


def _said(source: Source, steps: Steps, raw: Raw) -> bytes | None:
    """The meta of a result's entry; None if a parameter of a step is no plain value."""
    as_text = kind_of(Recipe(source, steps)).text
    return None if as_text is None else cached.tag() + _packed(_reference(source), raw, steps, as_text)


def _packed(reference: int, raw: Raw, steps: Steps, as_text: bytes) -> bytes:
    return _META.pack(reference, _MODES.index(raw.mode), len(steps), raw.width, raw.height) + as_text
