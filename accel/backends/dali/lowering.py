"""Lowering the part of an image's plan that DALI can do: to a structure, which images share, and each one's numbers.

Pure data, made without DALI. An image's stages are taken from the front as far as DALI has operators for them; the
rest, with the reason why DALI does not go on, are left to another backend.
"""

from __future__ import annotations

from copy import copy
from typing import Literal, NamedTuple

from accel.backends.dali import effects, index_maps, lut
from accel.backends.dali.operator_chain import Numbers, OperatorChain, Structure
from accel.backends.shared.index_maps import through
from accel.codec.decode import is_plainly_intact
from accel.codec.header import Raw
from accel.ops.resample import Aten
from accel.planning.plan import Decode, Item
from accel.planning.stages import Axis, Box, Effect, Pass, Stage

_FILTERS = {1: "LANCZOS3", 2: "LINEAR", 3: "CUBIC"}
"""DALI's names of filters, by Pillow's codes."""


class Lowered(NamedTuple):
    """DALI's part in a source, or in one image of it.

    Attributes:
        wanted: the decode, with its items.
        box: the part of the source that is decoded.
        structure, fed: the operators on it, and their numbers.
        rest: the stages of its item that are left; None if all stages of all items are.
        reason: why DALI does not finish; None if it does, and returns the item's values.
    """

    wanted: Decode
    box: Box
    structure: Structure
    fed: tuple[Numbers, ...]
    rest: tuple[Stage, ...] | None
    reason: str | None


NOT_INTACT = "DALI is not given what is not plainly an intact JPEG"
TOO_LARGE = "DALI is not given giant images: its memory pool would keep their size for ever"
_LARGEST = 64 << 20


def refused(wanted: Decode) -> str | None:
    """The reason why DALI must not get a source; None if it may.

    It may get pixels, and intact files, as it cannot recognize broken ones as Pillow does.
    """
    if wanted.box[2] * wanted.box[3] * wanted.channels > _LARGEST:
        return TOO_LARGE
    header = wanted.source.header
    if isinstance(header, Raw) or (header.reference == "pillow" and is_plainly_intact(wanted.source.data, header)):
        return None
    return NOT_INTACT


def lower_decoding(wanted: Decode) -> Lowered:
    """Lower only the decoding of a source."""
    box, chain = _begin(wanted)
    return _lowered(wanted, box, chain, None, "")


def lower_image(wanted: Decode, *, interleaved: bool) -> Lowered:
    """Lower as much as DALI can do for a decode with one item.

    Args:
        interleaved: whether the result's memory is ordered [height, width, channels].
    """
    item = wanted.items[0]
    box, chain = _begin(wanted)
    for number, stage in enumerate(item.stages):
        before = copy(chain)
        reason = _pass(chain, stage) if isinstance(stage, Pass) else _effect(chain, stage)
        if reason is None and stage.levels is not None:
            reason = lut.add_lut(chain, stage.levels)
        if reason is not None:
            return _lowered(wanted, box, before, item.stages[number:], reason)
    before = copy(chain)
    reason = _finish(chain, item, interleaved)
    return _lowered(wanted, box, chain if reason is None else before, (), reason)


def _begin(wanted: Decode) -> tuple[Box, OperatorChain]:
    if isinstance(wanted.source.header, Raw):
        return wanted.box, OperatorChain(wanted.box[2:], wanted.channels)
    return OperatorChain.on_region(wanted.box, wanted.source.header.width, wanted.channels)


def _lowered(
    wanted: Decode, box: Box, chain: OperatorChain, rest: tuple[Stage, ...] | None, reason: str | None
) -> Lowered:
    source: Literal["jpeg", "pixels"] = "pixels" if isinstance(wanted.source.header, Raw) else "jpeg"
    return Lowered(wanted, box, Structure(source, wanted.channels, chain.structure), chain.fed, rest, reason)


# -- passes: each gives a reason where DALI cannot do it ----------------------------------------------------


def _pass(chain: OperatorChain, stage: Pass) -> str | None:
    if stage.resample:
        return _resize(chain, stage)
    rows, columns = (through(axis.view, axis.window) for axis in (stage.rows, stage.columns))
    return index_maps.add_index_maps(chain, rows, columns, stage.fills)


def _resize(chain: OperatorChain, stage: Pass) -> str | None:
    kind = _FILTERS.get(stage.resample & 7)  # the higher bits mark torch's, and whether to antialias
    if kind is None:
        return "DALI has no box and no Hamming filter"
    axes = (stage.rows, stage.columns)
    if any(axis.extent is not None for axis in axes):
        return "DALI does not resize a box of fractions of pixels as Pillow does"
    if any(axis.view.table is not None for axis in axes):
        return "DALI does not resize what is padded or resized by nearest neighbours in one pass with it"
    spans = [axis.window.span() for axis in axes]
    if any(first == last for first, last in spans):
        return "nothing of the image is shown, only fill"
    read = [axis.view.span() for axis in axes]  # taps end where the view ends
    inside = [(max(a, 0), min(b, length)) for (a, b), length in zip(read, chain.size, strict=True)]
    chain.crop(tuple(a for a, _ in inside), tuple(b - a for a, b in inside))
    listed = any(axis.window.table is not None for axis in axes)
    regions = [_region(axis, span, listed, offset[0]) for axis, span, offset in zip(axes, spans, inside, strict=True)]
    height, width = (last - first for first, last in spans)
    starts, ends = zip(*regions, strict=True)
    static = kind, stage.resample < Aten.BILINEAR_POINT
    chain.add("resize", static, ((height, width), starts, ends), (height, width))
    if not listed:
        return None
    rows, columns = (axis.window.shift(-first) for axis, (first, _) in zip(axes, spans, strict=True))
    return index_maps.add_index_maps(chain, rows, columns, stage.fills)


def _region(axis: Axis, span: tuple[int, int], listed: bool, offset: int) -> tuple[float, float]:
    """The range of the input that the resize reads; backwards if it is flipped.

    Resized, it is the window itself or, if a window is ``listed`` and so applied afterwards, the part of the result
    that the window shows.
    """
    view, window = axis.view, axis.window
    scale = view.length / axis.size
    first, last = span if listed or window.step > 0 else span[::-1]

    def place(edge: int) -> float:
        return view.start - offset + (edge * scale if view.step > 0 else 1 - edge * scale)

    return place(first), place(last)


def _effect(chain: OperatorChain, effect: Effect) -> str | None:
    top, left, height, width = effect.box
    chain.crop((top, left), (height, width))
    return effects.add_effect(chain, effect)


# -- values -------------------------------------------------------------------------------------------------


def _finish(chain: OperatorChain, item: Item, interleaved: bool) -> str | None:
    dtype = lut.DTYPES.get(item.table.dtype)
    line = lut.line(item.table)
    if dtype is None:
        return f"DALI gives no {str(item.table.dtype).removeprefix('torch.')} values"
    if line is None:
        return "the values are no linear function of the levels"
    if item.table.shape[0] != chain.channels:
        return "the values have other channels than the pixels"
    mirror = chain.take_mirror()
    mean, std = line
    chain.add("crop_mirror_normalize", (dtype, interleaved, mean, std), ((mirror,),), chain.size)
    for patch in item.patches:
        if tuple(patch.values.shape[1:]) != (1, 1):
            return "DALI erases with one colour only"
        colour = tuple(patch.values.flatten().tolist())
        corner, size = (patch.top, patch.left), (patch.height, patch.width)
        chain.add("erase", (interleaved,), (corner, size, colour), chain.size)
    return None
