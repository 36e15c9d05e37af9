"""Effects as items of the kernel that runs them all (``effects.cu``)."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.ops import OPS
from accel.planning.stages import Effect

from ...cpu.effects import agrees
from ..descriptors import COUNTERS, EFFECT, MEASURED, TILE, packer
from ..program import Pixels, Program
from .told import TOLD, Op, Told


class _Ready(NamedTuple):
    """An effect's descriptor but for its addresses; ``told`` is None where the effect is not for the device."""

    effect: Effect
    told: Told | None
    shape: tuple[int, int, int]  # of the result: height, width, channels
    middle: bytes
    end: bytes
    blocks: int


_ready: dict[int, _Ready] = {}
_MOST_READY = 4096


def _ready_for(effect: Effect) -> _Ready:
    """Remembered with the effect: those of policies come again and again, but for large ones.

    Nor is a blur's, which depends on torch's settings.
    """
    if OPS[effect.op].holds_tensors or effect.op == "gaussian_blur":
        return _made_ready(effect)
    found = _ready.get(id(effect))
    if found is None or found.effect is not effect:
        if len(_ready) >= _MOST_READY:
            _ready.clear()
        found = _ready[id(effect)] = _made_ready(effect)
    return found


def _made_ready(effect: Effect) -> _Ready:
    told = TOLD[effect.op](effect.params, (*effect.box[2:], effect.channels)) if effect.op in TOLD else None
    if told is None or not (effect.kind == "torchvision" or agrees(effect.op)):
        return _Ready(effect, None, (0, 0, 0), b"", b"", 0)
    if told.op < Op.CONTRAST:
        return _tiled(effect, told)
    blocks = -(-effect.box[2] * effect.box[3] // MEASURED)
    return _packed(effect, told, (1, 256, effect.channels), 0, blocks)


def _tiled(effect: Effect, told: Told) -> _Ready:
    """Of an effect whose result is an image."""
    height, width = effect.output_size
    across = -(-width // TILE)
    return _packed(effect, told, (height, width, effect.output_channels), across, -(-height // TILE) * across)


def _packed(effect: Effect, told: Told, shape: tuple[int, int, int], across: int, blocks: int) -> _Ready:
    colour = int.from_bytes(bytes((told.fill * shape[2])[: shape[2]]), "little")
    whole = _descriptor(
        *(0, 0, 0, 0, 0, 0, *_padded(told.numbers, 8)),
        *(told.op, told.sampling, *effect.box[2:], effect.channels, *shape, 0, across, blocks),
        *(colour, *_padded(told.counts, 6)),
    )
    first_block = EFFECT.fields["first_block"][1]  # type: ignore[index]
    return _Ready(effect, told, shape, whole[_HEAD.size : first_block], whole[first_block + 4 :], blocks)


_descriptor = packer(EFFECT)
_HEAD, _FIRST_BLOCK = Struct("<5Qq"), Struct("<i")


def _padded(values: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    return (*values, *(0,) * (length - len(values)))


def on_device(effect: Effect) -> bool:
    """Whether the kernel runs it, and as the installed Pillow does."""
    return _ready_for(effect).told is not None


def sent_bytes(effect: Effect) -> int:
    """What is sent to the device for it, besides its descriptor."""
    told = _ready_for(effect).told
    assert told is not None
    planes = _planes(effect) if told.op == Op.ENCODED else 0
    return COUNTERS if told.op >= Op.CONTRAST else told.size + planes


def lower(
    program: Program, level: int, pixels: Pixels, effect: Effect, room: Callable[[int], int]
) -> tuple[int, Pixels]:
    """Add an effect to a program.

    Args:
        program: that program.
        level: where in it.
        pixels: its input.
        effect: what to run; ``on_device``.
        room: gives the place of so many bytes for the result, unless that is a table of levels.

    Returns:
        The level behind it, and what the next stage reads: the result, or the input seen through the table.
    """
    ready = _ready_for(effect)
    told = ready.told
    assert told is not None, f"{effect.op} is not for the device"
    then = program.levels_of(effect.levels)
    if told.op >= Op.CONTRAST:
        table = program.scratch.take(256 * pixels.channels)
        counters = program.send(object(), COUNTERS, _no_counts)
        _add(program, level, ready, pixels, table, then, counters)
        return level + 1, Pixels(*pixels[:4], table)
    data = told.data
    sent = 0 if data is None else program.send((id(effect), "data"), told.size, lambda: [data()])
    height, width, depth = ready.shape
    if told.op == Op.ENCODED:
        planes = program.scratch.take(_planes(effect))
        _add(program, level, ready, pixels, planes, 0, sent)
        level += 1
        pixels = Pixels(planes, height, width, depth)
        ready = _tiled(effect._replace(box=(0, 0, height, width)), Told(Op.DECODED))
    made = room(height * width * depth)
    _add(program, level, ready, pixels, made, then, sent)
    return level + 1, Pixels(made, height, width, depth)


def _planes(effect: Effect) -> int:
    """The bytes of a picture's samples as JPEG has them: luma, and two chromas of half its height and width."""
    _, _, height, width = effect.box
    return height * width + (2 * (-(-height // 2)) * (-(-width // 2)) if effect.channels == 3 else 0)


def _no_counts() -> list[npt.NDArray[np.uint8]]:
    return [np.zeros(COUNTERS, np.uint8)]


def look_up(program: Program, level: int, pixels: Pixels, room: int) -> Pixels:
    """Add a stage that looks up the levels through which pixels are seen."""
    _, height, width, channels, _ = pixels
    effect = Effect("crop", (0, 0, height, width), (0, 0, height, width), channels)  # of all of it
    ready = _tiled(effect, Told(Op.COPIED))
    _add(program, level, ready, pixels, room, 0, 0)
    return Pixels(room, height, width, channels)


def _add(program: Program, level: int, ready: _Ready, pixels: Pixels, made: int, levels: int, data: int) -> None:
    where, _, width, channels, seen = pixels
    top, left, _, _ = ready.effect.box
    pitch = width * channels
    launch = program.launch(level, "effects", EFFECT)
    head = _HEAD.pack(where + top * pitch + left * channels, seen, made, levels, data, pitch)
    launch.add(b"".join((head, ready.middle, _FIRST_BLOCK.pack(launch.total), ready.end)), ready.blocks)
