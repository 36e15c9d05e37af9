"""What of an image's plan DALI can do: a structure, which images share, and the numbers each of them is fed with.

Pure data, made without DALI. An image's stages are taken from the front as far as DALI has operators for them; the
rest of them, with the reason why DALI does not go on, are left for another backend.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from accel.codec.decode import one_scan
from accel.codec.header import Raw
from accel.ops.resample import Aten
from accel.planning.plan import Decode, Item
from accel.planning.stages import Axis, Box, Effect, Pass, Stage

from . import effects, levels, moves
from .program import Numbers, Program, Structure

_FILTERS: dict[int, tuple[str, bool]] = {
    2: ("LINEAR", True),
    3: ("CUBIC", True),
    1: ("LANCZOS3", True),
    Aten.BILINEAR: ("LINEAR", True),
    Aten.BICUBIC: ("CUBIC", True),
    Aten.LANCZOS: ("LANCZOS3", True),
    Aten.BILINEAR_POINT: ("LINEAR", False),
    Aten.BICUBIC_POINT: ("CUBIC", False),
}
"""DALI's name of a filter, by the plan's code, and whether it antialiases."""


class Work(NamedTuple):
    """What DALI does for one source, or one image of it.

    Attributes:
        wanted: the decode, with the items that come out of it.
        box: the part of the source that is decoded.
        structure, fed: the operators on it, and their numbers for it.
        rest: the stages of its item that are left; () where all of them are, or none.
        reason: why DALI does not finish; None: it does, and gives the item's values.
    """

    wanted: Decode
    box: Box
    structure: Structure
    fed: tuple[Numbers, ...]
    rest: tuple[Stage, ...]
    reason: str | None


NOT_INTACT = "DALI is not given what is not plainly an intact JPEG"
TOO_LARGE = "DALI is not given giant images: its memory pool would keep their size for ever"
_LARGEST = 64 << 20


def refused(wanted: Decode) -> str | None:
    """Why DALI may not have the source; None: it may.

    It may have pixels, and files of which nothing is missing, as far as markers tell: DALI cannot tell broken files
    from intact ones as Pillow does.
    """
    if wanted.box[2] * wanted.box[3] * wanted.channels > _LARGEST:
        return TOO_LARGE
    header = wanted.source.header
    if isinstance(header, Raw):
        return None
    if not header.ordinary or header.judge != "pillow":
        return NOT_INTACT
    return None if header.progressive or one_scan(wanted.source.data, header) else NOT_INTACT


def decoding(wanted: Decode) -> Work:
    """DALI decodes, and nothing else."""
    box, program = _begin(wanted)
    return _work(wanted, box, program, (), "")


def split(wanted: Decode) -> list[Decode]:
    """A decode of several items as one for each, of no more than it reads."""
    if len(wanted.items) == 1:
        return [wanted]
    found = []
    for item in wanted.items:
        first = item.stages[0]
        top, left, height, width = first.reads
        own = item._replace(stages=(first.onto(first.reads), *item.stages[1:]))
        box = (wanted.box[0] + top, wanted.box[1] + left, height, width)
        found.append(Decode(wanted.source, wanted.channels, box, (own,)))
    return found


def lower(wanted: Decode, *, interleaved: bool) -> Work:
    """As much as DALI can do for a decode of one item.

    Args:
        interleaved: the result's memory is ordered [height, width, channels].
    """
    item = wanted.items[0]
    box, program = _begin(wanted)
    for number, stage in enumerate(item.stages):
        before = program.mark()
        reason = _pass(program, stage) if isinstance(stage, Pass) else _effect(program, stage)
        if reason is not None:
            program.back_to(before)
            return _work(wanted, box, program, _chained(program, item.stages[number:]), reason)
    before = program.mark()
    reason = _finish(program, item, interleaved)
    if reason is not None:
        program.back_to(before)
        return _work(wanted, box, program, _chained(program, ()), reason)
    return _work(wanted, box, program, (), None)


def _begin(wanted: Decode) -> tuple[Box, Program]:
    if isinstance(wanted.source.header, Raw):
        return wanted.box, Program(wanted.box[2:], wanted.channels)
    return Program.on_region(wanted.box, wanted.source.header.width, wanted.channels)


def _work(wanted: Decode, box: Box, program: Program, rest: tuple[Stage, ...], reason: str | None) -> Work:
    source: Literal["jpeg", "pixels"] = "pixels" if isinstance(wanted.source.header, Raw) else "jpeg"
    return Work(wanted, box, Structure(source, wanted.channels, program.structure), program.fed, rest, reason)


def _chained(program: Program, rest: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """What is left as a chain, which begins and ends with a pass."""
    return rest if rest and isinstance(rest[0], Pass) else (_nothing(program.size), *rest)


def _nothing(size: tuple[int, int]) -> Pass:
    """The pass that shows an image of this size as it is."""
    rows, columns = (Axis(moves.whole(length), length, moves.whole(length)) for length in size)
    return Pass(rows, columns, 0, ())


# -- passes: each gives a reason where DALI cannot do it ----------------------------------------------------


def _pass(program: Program, stage: Pass) -> str | None:
    reason = _resize(program, stage) if stage.resample else _move(program, stage)
    if reason is None and stage.levels is not None:
        reason = levels.lower(program, stage.levels)
    return reason


def _move(program: Program, stage: Pass) -> str | None:
    rows, columns = (moves.through(axis.view, axis.window) for axis in (stage.rows, stage.columns))
    return moves.lower(program, rows, columns, stage.fills)


def _resize(program: Program, stage: Pass) -> str | None:
    if stage.resample not in _FILTERS:
        return "DALI has no box and no Hamming filter"
    axes = (stage.rows, stage.columns)
    if any(axis.view.table is not None for axis in axes):
        return "DALI does not resize what is padded or resized by nearest neighbours in one pass with it"
    spans = [axis.window.span() for axis in axes]
    if any(first == last for first, last in spans):
        return "nothing of the image is shown, only fill"
    seen = [axis.view.span() for axis in axes]  # taps end where the view ends
    inside = [(max(a, 0), min(b, length)) for (a, b), length in zip(seen, program.size, strict=True)]
    program.crop(tuple(a for a, _ in inside), tuple(b - a for a, b in inside))
    listed = any(axis.window.table is not None for axis in axes)
    regions = [_region(axis, span, listed, offset[0]) for axis, span, offset in zip(axes, spans, inside, strict=True)]
    height, width = (last - first for first, last in spans)
    program.add(
        "resize",
        _FILTERS[stage.resample],
        ((height, width), tuple(start for start, _ in regions), tuple(end for _, end in regions)),
        (height, width),
    )
    if not listed:
        return None
    rows, columns = (axis.window.shift(-first) for axis, (first, _) in zip(axes, spans, strict=True))
    return moves.lower(program, rows, columns, stage.fills)


def _region(axis: Axis, span: tuple[int, int], listed: bool, offset: int) -> tuple[float, float]:
    """From where to where of the input the window is taken; backwards where it is flipped.

    Unless there is a list to be followed afterwards, it is the window itself, else the part of the result it shows.
    """
    view, window = axis.view, axis.window
    scale = view.length / axis.size
    first, last = span if listed or window.step > 0 else span[::-1]

    def place(edge: int) -> float:
        return view.start - offset + (edge * scale if view.step > 0 else 1 - edge * scale)

    return place(first), place(last)


def _effect(program: Program, effect: Effect) -> str | None:
    top, left, height, width = effect.box
    program.crop((top, left), (height, width))
    reason = effects.lower(program, effect)
    if reason is None and effect.levels is not None:
        reason = levels.lower(program, effect.levels)
    return reason


# -- values -------------------------------------------------------------------------------------------------


def _finish(program: Program, item: Item, interleaved: bool) -> str | None:
    dtype = levels.DTYPES.get(item.table.dtype)
    line = levels.line(item.table)
    if dtype is None:
        return f"DALI gives no {str(item.table.dtype).removeprefix('torch.')} values"
    if line is None:
        return "the values are no linear function of the levels"
    if item.table.shape[0] != program.channels:
        return "the values have other channels than the pixels"
    mirror = program.take_mirror()
    mean, std = line
    program.add("crop_mirror_normalize", (dtype, interleaved, mean, std), ((mirror,),), program.size)
    for patch in item.patches:
        if tuple(patch.values.shape[1:]) != (1, 1):
            return "DALI erases with one colour only"
        colour = tuple(patch.values.flatten().tolist())
        corner, size = (patch.top, patch.left), (patch.height, patch.width)
        program.add("erase", (interleaved,), (corner, size, colour), program.size)
    return None
