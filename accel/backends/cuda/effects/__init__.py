"""Lowering a plan's effects to items of the one kernel that runs them all (``effects.cu``).

``arguments`` has a line for each op.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

import numpy as np

from accel.backends.cuda.descriptors import COUNTERS, EFFECT, EFFECT_OPS, MEASURED, STATISTICS, TILE, packer
from accel.backends.cuda.effects.arguments import ARGUMENTS, Arguments
from accel.backends.cuda.schedule import Pixels, Schedule
from accel.backends.shared.identity_cache import IdentityCache
from accel.ops import OPS
from accel.planning.stages import Effect


class _Lowered(NamedTuple):
    """An effect's descriptor without its addresses."""

    effect: Effect
    arguments: Arguments
    shape: tuple[int, int, int]  # of the result: height, width, channels
    middle: bytes
    end: bytes
    blocks: int
    then: _Lowered | None = None


def _lower(effect: Effect) -> _Lowered | None:
    shape = (*effect.box[2:], effect.channels)
    arguments = ARGUMENTS[effect.op](effect.params, shape) if effect.op in ARGUMENTS else None
    if arguments is None:
        return None
    if arguments.op not in STATISTICS:
        return _tiled(effect, arguments)
    blocks = -(-effect.box[2] * effect.box[3] // MEASURED)
    return _packed(effect, arguments, (1, 256, effect.channels), 0, blocks)


lowered_once = IdentityCache(_lower, 4096)
"""Remembered, as effects of policies repeat."""


def _lowered(effect: Effect) -> _Lowered | None:
    """Lower an effect; None if it is not for the device. Remembered, except large ones and blurs (by settings)."""
    again = OPS[effect.op].holds_tensors or effect.op == "gaussian_blur"
    return _lower(effect) if again else lowered_once(effect)


def _tiled(effect: Effect, arguments: Arguments) -> _Lowered:
    """Lower an effect whose result is an image."""
    height, width = effect.output_size
    across, then = -(-width // TILE), None
    if arguments.then is not None:
        then = _tiled(effect._replace(box=(0, 0, height, width)), arguments.then)
    lowered = _packed(effect, arguments, (height, width, effect.output_channels), across, -(-height // TILE) * across)
    return lowered._replace(then=then)


def _packed(effect: Effect, arguments: Arguments, shape: tuple[int, int, int], across: int, blocks: int) -> _Lowered:
    colour = int.from_bytes(bytes((arguments.fill * shape[2])[: shape[2]]), "little")
    lengths = (arguments.numbers, 8), (arguments.counts, 6)
    numbers, counts = ((*given, *(0,) * (length - len(given))) for given, length in lengths)
    whole = _descriptor(
        *(0, 0, 0, 0, 0, 0, *numbers),
        *(EFFECT_OPS[arguments.op], arguments.sampling, *effect.box[2:], effect.channels, *shape, 0, across, blocks),
        *(colour, *counts),
    )
    first_block = EFFECT.fields["first_block"][1]  # type: ignore[index]
    return _Lowered(effect, arguments, shape, whole[_HEAD.size : first_block], whole[first_block + 4 :], blocks)


_descriptor = packer(EFFECT)
_HEAD, _FIRST_BLOCK = Struct("<5Qq"), Struct("<i")


def on_device(effect: Effect) -> bool:
    """Whether the kernel runs an effect."""
    return _lowered(effect) is not None


def sent_bytes(effect: Effect) -> int:
    """The bytes that are sent to the device for an effect, besides its descriptor."""
    lowered = _lowered(effect)
    assert lowered is not None
    return COUNTERS if lowered.arguments.op in STATISTICS else lowered.arguments.size


def add_effect(
    schedule: Schedule, level: int, pixels: Pixels, effect: Effect, take: Callable[[int], int]
) -> tuple[int, Pixels]:
    """Add an effect to a schedule.

    Args:
        schedule: the schedule.
        level: its level there.
        pixels: its input.
        effect: the effect; ``on_device`` must be true for it.
        take: returns the place of so many bytes for a result, unless that is a lookup table.

    Returns:
        The next level, and the input of the next stage: the result, or this input with the lookup table.
    """
    lowered = _lowered(effect)
    assert lowered is not None, f"{effect.op} is not for the device"
    arguments = lowered.arguments
    output_lut = schedule.send_lut(effect.levels)
    if arguments.op in STATISTICS:
        lut = schedule.scratch.take(256 * pixels.channels)
        counters = schedule.send(object(), COUNTERS, lambda: [np.zeros(COUNTERS, np.uint8)])
        _add(schedule, level, lowered, pixels, lut, output_lut, counters)
        return level + 1, Pixels(*pixels[:4], lut)
    data = arguments.data
    sent = 0 if data is None else schedule.send((id(effect), "data"), arguments.size, lambda: [data()])
    height, width, channels = lowered.shape
    while lowered.then is not None:
        between = take(height * width * channels)
        _add(schedule, level, lowered, pixels, between, 0, sent)
        level, pixels, lowered = level + 1, Pixels(between, height, width, channels), lowered.then
    result = take(height * width * channels)
    _add(schedule, level, lowered, pixels, result, output_lut, sent)
    return level + 1, Pixels(result, height, width, channels)


def add_look_up(schedule: Schedule, level: int, pixels: Pixels, result: int) -> Pixels:
    """Add a stage that looks pixels up in their table."""
    _, height, width, channels, _ = pixels
    effect = Effect("crop", (0, 0, height, width), (0, 0, height, width), channels)  # of all of it
    _add(schedule, level, _tiled(effect, Arguments("COPIED")), pixels, result, 0, 0)
    return Pixels(result, height, width, channels)


def _add(
    schedule: Schedule, level: int, lowered: _Lowered, pixels: Pixels, result: int, output_lut: int, data: int
) -> None:
    where, _, width, channels, input_lut = pixels
    top, left, _, _ = lowered.effect.box
    pitch = width * channels
    launch = schedule.launch(level, "effects", EFFECT)
    head = _HEAD.pack(where + top * pitch + left * channels, input_lut, result, output_lut, data, pitch)
    launch.add(b"".join((head, lowered.middle, _FIRST_BLOCK.pack(launch.total), lowered.end)), lowered.blocks)
