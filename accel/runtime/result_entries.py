"""What a cache's entry says of a result, and putting one in.

A result is uint8 pixels in bands of rows, found by the file's key and the exact steps. Of a file that is no JPEG, which
has no planes, all pixels may be kept, as the result of no step.
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
"""Bytes of a part of a result, about, and how many of them there are at most: what is read is whole parts."""

_SMALL = 3 << 17  # bytes that any result may have; a larger one no more than the picture has samples
_PAYS = 1e-9  # seconds of decoding that a byte of pixels must spare; reading and checking it takes a third of that
_META = struct.Struct("<BBHII")  # the reference, the mode, how many steps, the width and height
_REFERENCES = "pillow", "torchvision", "none", *DECODERS
_MODES = "", "L", "RGB"


def channels(raw: Raw | Header) -> int:
    """How many channels the pixels of a mode have."""
    return 3 if raw.mode == "RGB" else 1


def size_of(raw: Raw) -> int:
    """The bytes of its pixels."""
    return raw.height * raw.width * channels(raw)


class Found(NamedTuple):
    """An entry of a cache, what it holds, and of how many steps."""

    entry: Entry
    raw: Raw
    length: int


class Beginning:
    """The steps on pixels that a recipe begins with, and how entries tell the first so many of them."""

    __slots__ = ("_told", "steps")

    def __init__(self, on_pixels: Steps) -> None:
        self.steps = on_pixels
        self._told: dict[int, bytes] = {}

    def told(self, count: int) -> bytes:
        return self._told.get(count) or self._told.setdefault(count, repr(self.steps[:count]).encode())


def found_of(source: Source, begins: Beginning, *entries: Entry | None) -> Found | None:
    """The first entry that is a result of the first steps."""
    for entry in entries:
        raw = None if entry is None else _fits(source, begins, entry)
        if entry is not None and raw is not None:
            return Found(entry, raw, steps_of(entry))
    return None


def steps_of(entry: Entry) -> int:
    """Of how many steps a result is."""
    return int(_META.unpack_from(entry.meta, cached.MARK)[2])


def _fits(source: Source, begins: Beginning, entry: Entry) -> Raw | None:
    """What an entry holds, if that is a result of the first steps; None: it is not."""
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
    """The key of a result besides the first of its file."""
    return cached.variant(
        cached.place(source), bytes([_reference(source)]) + (kind_of(Recipe(source, steps)).text or b"")
    )


def made_of(entry: Entry) -> tuple[str, Raw, Steps] | None:
    """The reference of a result's decoding, its size, and its steps; None where these cannot be read again."""
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
    """What results of pictures of one size by the same steps have in common.

    ``shelf``: that they have in the cache. ``text``: the steps; None where a parameter is no plain value.
    ``resized``: whether a resize is among them.
    """

    raw: Raw
    shelf: int
    text: bytes | None
    resized: bool


def kind_of(before: Recipe) -> Kind:
    """What a result is."""
    (width, height, *_), steps = before.source.header, before.steps
    given = height, width, channels(before.source.header), steps
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
    """Whether a result is to be kept: of a resize, or of a small part, and of a size that is worth its bytes."""
    (width, height, *_), kind = before.source.header, kind_of(before)
    return bool(before.steps) and _pays(kind, height * width)


def _pays(kind: Kind, pixels: int) -> bool:
    """Whether results of a kind are to be kept, of pictures of so many pixels."""
    own = size_of(kind.raw)
    return kind.text is not None and own <= (max(3 * pixels, _SMALL) if kind.resized else pixels)


def pays_as_a_whole(source: Source) -> bool:
    """Whether all pixels of a file that is no JPEG are worth their bytes; of a JPEG it is planes that are kept.

    A BMP file takes less to decode than its pixels take to be read and checked; a PNG file thirty times of that.
    """
    if isinstance(source.header, Header):
        return True
    pixels = source.header.height * source.header.width * channels(source.header)
    return source.cached is not None and source.cached.seconds > _PAYS * pixels


def keep_all(source: Source) -> None:
    """Keep all pixels of a file that is no JPEG, where they are to be (``Known.fills``) and there is room for them."""
    known, raw = source.cached, source.header
    if known is None or not known.fills or not isinstance(raw, Raw):
        return
    source.cached = known._replace(fills=False)
    content = memoryview(source.data).cast("B")
    known.cache.worth.made(PIXELS, 1e6 * known.seconds, content.nbytes)
    if known.cache.room(PIXELS, content.nbytes):
        put([(Recipe(source, ()), cached.place(source), raw)], PIXELS, content)


class Told(NamedTuple):
    """What is kept of results of JPEG pictures of one size by the same steps.

    ``said``: of each, its entry's meta but for the versions; None: it is not worth it. ``ends``: where its bands end.
    """

    raw: Raw
    shelf: int
    said: bytes | None
    ends: Sequence[int]


@lru_cache(maxsize=4096)
def told(structure: Structure, height: int, width: int, count: int, row: tuple[int, ...]) -> Told:
    """What is kept of results of pictures of ``count`` channels, of all steps of a row, which are some."""
    steps = structure.steps(row)
    raw, shelf, as_text, _ = kind = _kind(height, width, count, steps)
    said = None
    if as_text is not None and _pays(kind, height * width):
        said = _packed(_REFERENCES.index("pillow"), raw, steps, as_text)
    return Told(raw, shelf, said, _ends(raw))


def put(results: Sequence[tuple[Recipe, Key | bytes, Raw]], shelf: int, content: memoryview) -> None:
    """Keep results, each with its key and size, whose pixels lie side by side."""
    cache = cached.of(results[0][0].source.selection.options)
    files: list[Given] = []
    for (source, steps), key, raw in results:
        header, said = cached.packed(source), _said(source, steps, raw)
        if header is not None and said is not None:
            files.append((key, header, said, _ends(raw)))
    if cache is None or len({each[0] for each in files}) < len(results):  # a file came twice, or is none to be kept
        for each in results if cache is not None and len(results) > 1 else ():
            size = size_of(each[-1])
            put([each], shelf, content[:size])
            content = content[size:]
        return
    counters.count(counters.RESULTS, sum(cache.put_all(files, shelf, content)))


def _ends(raw: Raw) -> array[int]:
    """Where the bands of a result end."""
    size, row = size_of(raw), raw.width * channels(raw)
    band = max(max(_BAND, size // _BANDS) // row, 1) * row
    return array("I", [*range(band, size, band), size])


def _said(source: Source, steps: Steps, raw: Raw) -> bytes | None:
    """What is said of a result, its entry's meta; None where a parameter is no plain value."""
    as_text = kind_of(Recipe(source, steps)).text
    return None if as_text is None else cached.tag() + _packed(_reference(source), raw, steps, as_text)


def _packed(reference: int, raw: Raw, steps: Steps, as_text: bytes) -> bytes:
    return _META.pack(reference, _MODES.index(raw.mode), len(steps), raw.width, raw.height) + as_text
