"""What the kernel of effects is told about each."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL.Image import Resampling

from accel.ops.row import Params
from accel.planning.stages import Effect, Levels

from ...cpu.effects import agrees, gaussian
from ..descriptors import COUNTERS, EFFECT, MEASURED, TILE
from ..program import Pixels, Program


class Op(IntEnum):
    """``Op`` of effect.h."""

    COPIED = 0
    GREY = 1
    SATURATED = 2
    HUE = 3
    PERMUTED = 4
    SHARPENED = 5
    BLURRED = 6
    FIXED = 7
    AFFINE = 8
    PERSPECTIVE = 9
    TRANSPOSED = 10
    ELASTIC = 11
    ERASED = 12
    CONTRAST = 13
    AUTOCONTRAST = 14
    EQUALIZED = 15


class Told(NamedTuple):
    """An op's own fields of the descriptor, and what else is sent for it: so many bytes, made when they are sent."""

    op: Op
    numbers: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    sampling: int = 0
    fill: tuple[int, ...] = ()
    size: int = 0
    data: Callable[[], npt.NDArray[Any]] | None = None


def on_device(effect: Effect) -> bool:
    """Whether the kernel runs it, and as the installed Pillow does."""
    if effect.op not in _TOLD or _TOLD[effect.op](effect.params, effect.channels) is None:
        return False
    return effect.kind == "torchvision" or agrees(effect.op)


def sent_bytes(effect: Effect) -> int:
    """What is sent to the device for it, besides its descriptor."""
    told = _told(effect)
    return COUNTERS if told.op >= Op.CONTRAST else told.size


def lower(
    program: Program, level: int, pixels: Pixels, effect: Effect, levels: Levels | None, room: Callable[[], int]
) -> Pixels:
    """Add an effect to a program.

    Args:
        program: that program.
        level: where in it.
        pixels: its input.
        effect: what to run; ``on_device``.
        levels: what becomes of its result's levels.
        room: asked for where the result goes, unless that is a table of levels.

    Returns:
        What the next stage reads: the result, or the input seen through the table.
    """
    told = _told(effect)
    top, left, rows, columns = effect.box
    pitch = pixels.width * pixels.channels
    given = pixels._replace(place=pixels.place + top * pitch + left * pixels.channels, height=rows, width=columns)
    then = program.levels_of(levels)
    if told.op >= Op.CONTRAST:
        table = program.scratch.take(256 * pixels.channels)
        counters = program.send(object(), COUNTERS, lambda: [np.zeros(COUNTERS, np.uint8)])
        _add(program, level, told, given, pitch, Pixels(table, 1, 256, pixels.channels), then, counters)
        return pixels._replace(seen=table)
    data = told.data
    sent = 0 if data is None else program.send((id(effect), "data"), told.size, lambda: [data()])
    made = Pixels(room(), *effect.output_size, effect.output_channels)
    _add(program, level, told, given, pitch, made, then, sent)
    return made


def look_up(program: Program, level: int, pixels: Pixels, room: int) -> Pixels:
    """Add a stage that looks up the levels through which pixels are seen."""
    made = pixels._replace(place=room, seen=0)
    _add(program, level, Told(Op.COPIED), pixels, pixels.width * pixels.channels, made, 0, 0)
    return made


def _add(
    program: Program, level: int, told: Told, given: Pixels, pitch: int, made: Pixels, levels: int, data: int
) -> None:
    launch = program.launch(level, "effects", EFFECT)
    if told.op >= Op.CONTRAST:
        across, blocks = 0, -(-given.height * given.width // MEASURED)
    else:
        across = -(-made.width // TILE)
        blocks = -(-made.height // TILE) * across
    colour = int.from_bytes(bytes((told.fill * made.channels)[: made.channels]), "little")
    launch.add(
        (
            *(given.place, given.seen, made.place, levels, data, pitch, _padded(told.numbers, 8)),
            *(told.op, told.sampling, given.height, given.width, given.channels),
            *(made.height, made.width, made.channels, launch.total, across, blocks),
            *(colour, _padded(told.counts, 6)),
        ),
        blocks,
    )


def _padded(values: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    return (*values, *(0,) * (length - len(values)))


# -- one line for each --------------------------------------------------------------------------------------


def _told(effect: Effect) -> Told:
    told = _TOLD[effect.op](effect.params, effect.channels)
    assert told is not None, f"{effect.op} is not for the device"
    return told


def _of_three(told: Callable[[Params], Told]) -> Callable[[Params, int], Told]:
    """Of three channels; one channel stays as it is."""
    return lambda params, channels: told(params) if channels == 3 else Told(Op.COPIED)


def _blur(params: Params, channels: int) -> Told:
    kernel_x, kernel_y, sigma_x, sigma_y = params

    def weights() -> npt.NDArray[np.float32]:
        return np.concatenate([gaussian(kernel_x, sigma_x), gaussian(kernel_y, sigma_y)])

    return Told(Op.BLURRED, counts=(kernel_x, kernel_y), size=4 * (kernel_x + kernel_y), data=weights)


def _affine(params: Params, channels: int) -> Told:
    a, sampling, fill = params[2:]
    if sampling != Resampling.NEAREST:
        return Told(Op.AFFINE, numbers=a, sampling=sampling, fill=fill)
    starts = (a[2] + a[0] * 0.5 + a[1] * 0.5, a[5] + a[3] * 0.5 + a[4] * 0.5)
    return Told(Op.FIXED, numbers=tuple(map(_fixed, (starts[0], *a[:2], starts[1], *a[3:5]))), fill=fill)


def _fixed(value: float) -> int:
    """In 1/65536 (Geometry.c, FIX)."""
    return math.floor(value * 65536.0 + 0.5)


def _perspective(params: Params, channels: int) -> Told:
    numbers, sampling, fill = params[2:]
    return Told(Op.PERSPECTIVE, numbers=numbers, sampling=sampling, fill=fill)


def _elastic(params: Params, channels: int) -> Told | None:
    """Where it is known how torch rounds on this machine, and colours are colours."""
    displacement, interpolation, fill, version = params
    height, width = displacement.shape[1:3]
    capability = torch.backends.cpu.get_cpu_capability()
    known = platform.machine() in ("x86_64", "AMD64") and capability in ("DEFAULT", "AVX2", "AVX512")
    single = displacement.dtype == torch.get_default_dtype() == torch.float32
    if not known or not single or 4 * height * width >= 1 << 31:
        return None
    colour = tuple(map(float, fill if isinstance(fill, tuple) else (() if fill is None else (fill,))))
    if not all(0 <= value <= 255 for value in colour):
        return None

    def grid() -> npt.NDArray[np.float32]:
        places = displacement[0].clone()
        for axis, length in enumerate((width, height)):
            line = torch.linspace((1 - length) / length, (length - 1) / length, length)
            places[..., axis] += line if axis == 0 else line[:, None]
        return np.asarray(places)

    return Told(
        Op.ELASTIC,
        numbers=(colour * channels)[:channels],
        counts=(capability != "DEFAULT", version, fill is not None),
        sampling=Resampling.BILINEAR if interpolation == "bilinear" else Resampling.NEAREST,
        size=8 * height * width,
        data=grid,
    )


def _erased(params: Params, channels: int) -> Told | None:
    """Where the value is of the rectangle's size, or repeats; torch's broadcasting of others is left to it."""
    top, left, height, width, value = params
    if value.dim() != 3 or value.shape[0] not in (1, channels) or not value.numel():
        return None
    if value.shape[1] not in (1, height) or value.shape[2] not in (1, width):
        return None
    rows, columns = value.shape[1:]

    def given() -> npt.NDArray[np.uint8]:
        return np.asarray(value.to(torch.uint8).expand(channels, -1, -1).permute(1, 2, 0).contiguous())

    counts = (top, left, height, width, rows, columns)
    return Told(Op.ERASED, counts=counts, size=channels * rows * columns, data=given)


def _permuted(params: Params, channels: int) -> Told:
    return Told(Op.PERMUTED, counts=(sum(source << 8 * channel for channel, source in enumerate(params[0])),))


_TOLD: dict[str, Callable[[Params, int], Told | None]] = {
    "convert": lambda params, channels: Told(Op.GREY if channels == 1 else Op.COPIED),
    "to_grayscale": lambda params, channels: Told(Op.GREY),
    "adjust_saturation": _of_three(lambda params: Told(Op.SATURATED, numbers=params)),
    "adjust_hue": _of_three(lambda params: Told(Op.HUE, counts=(int(params[0] * 255) & 255,))),
    "permute_channels": _permuted,
    "adjust_sharpness": lambda params, channels: Told(Op.SHARPENED, numbers=params),
    "gaussian_blur": _blur,
    "affine": _affine,
    "perspective": _perspective,
    "elastic": _elastic,
    "transpose": lambda params, channels: Told(Op.TRANSPOSED),
    "erase_image": _erased,
    "adjust_contrast": lambda params, channels: Told(Op.CONTRAST, numbers=params),
    "autocontrast": lambda params, channels: Told(Op.AUTOCONTRAST),
    "equalize": lambda params, channels: Told(Op.EQUALIZED),
}
