"""Rows of the table: ops that move rows and columns separately (crops, flips, pads, resizes), and modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PIL.Image import Resampling
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F2

from accel.ops import resample
from accel.ops.index import Positions, nearest
from accel.ops.row import Axes, EffectOp, IndexOp, Params, ResampleOp, Size, always, target_size
from accel.system.private_names import private

F_pil = private("torchvision.transforms._functional_pil", "crop", "hflip", "vflip", "pad", "resize")


def _lower_crop(axes: Axes, params: Params, code: int) -> Axes:
    top, left, height, width = params
    return axes[0].crop(top, height, code), axes[1].crop(left, width, code)


def _leaves(size: Size, params: Params) -> bool:
    """Whether a crop reaches beyond the image."""
    top, left, height, width = params
    return bool(top < 0 or left < 0 or top + height > size[0] or left + width > size[1])


def _lower_pad(axes: Axes, params: Params, code: int) -> Axes:
    left, top, right, bottom, mode, _ = params
    return axes[0].pad(top, bottom, mode, code), axes[1].pad(left, right, mode, code)


def _lower_by(positions: Callable[[int, int, int], Positions]) -> Callable[[Axes, Params, int], Axes]:
    """``IndexOp.lower`` for a resize that picks pixels; ``positions``: (old size, new size, other axis's new size) ->
    the input positions of an axis."""

    def lower(axes: Axes, params: Params, code: int) -> Axes:
        (rows, columns), (height, width) = axes, params
        return (
            rows.take_or_fill(positions(rows.length, height, width)),
            columns.take_or_fill(positions(columns.length, width, height)),
        )

    return lower


def _fill(image: Any, params: Params) -> Any:
    return (params[5] * 3)[: len(image.getbands())] if params[5] else 0


def _picked(name: str, mode: InterpolationMode, positions: Callable[[int, int, int], Positions]) -> IndexOp:
    """The row of a resize of tensors that picks pixels; ``positions`` as for ``_lower_by``."""
    return IndexOp(
        name,
        lambda tensor, params: F2.resize(tensor, list(params), mode),
        ("height", "width"),
        _SIZES,
        takes="pixels",
        size=target_size,
        lower=_lower_by(positions),
    )


FILTERS = tuple(int(code) for code in sorted(Resampling) if code in (1, 2, 3, 4, 5))
_SIZES = ((17, 23), (64, 48), (1, 1), (300, 5))

ROWS = (
    EffectOp(
        "convert",
        lambda image, params: image.convert(*params),
        ("mode",),
        (("RGB",),),
        kind="mix",
        channels=lambda channels, params: 3,
        keeps=lambda channels, params: channels == 3,
    ),
    IndexOp(
        "crop",
        lambda image, params: F_pil.crop(image, *params),
        ("top", "left", "height", "width"),
        ((0, 0, 1, 1), (3, 5, 20, 11), (-4, -7, 30, 25), (10, 10, 500, 400), (900, 0, 8, 8)),
        size=lambda size, params: (params[2], params[3]),
        lower=_lower_crop,
        fill=lambda params, channels: (0,) * channels,
        fills=_leaves,
    ),
    IndexOp("hflip", lambda image, params: F_pil.hflip(image), lower=lambda axes, *_: (axes[0], axes[1].flip())),
    IndexOp("vflip", lambda image, params: F_pil.vflip(image), lower=lambda axes, *_: (axes[0].flip(), axes[1])),
    IndexOp(
        "pad",
        lambda image, params: F_pil.pad(image, params[:4], _fill(image, params), params[4]),
        ("left", "top", "right", "bottom", "mode", "fill"),
        (
            (1, 2, 3, 4, "constant", (9, 200, 31)),
            (5, 5, 5, 5, "edge", None),
            (2, 3, 4, 1, "reflect", None),
            (4, 1, 2, 3, "symmetric", None),
        ),
        size=lambda size, params: (size[0] + params[1] + params[3], size[1] + params[0] + params[2]),
        lower=_lower_pad,
        fill=lambda params, channels: (params[5] * channels)[:channels] if params[5] else (0,) * channels,
        fills=lambda size, params: params[4] == "constant",
        renews=always,
    ),
    IndexOp(
        "resize_nearest",
        lambda image, params: F_pil.resize(image, list(params[:2]), 0),
        ("height", "width"),
        _SIZES,
        size=target_size,
        lower=_lower_by(lambda old, new, other: nearest(old, new)),
    ),
    ResampleOp(
        "resize",
        lambda image, params: F_pil.resize(image, list(params[:2]), params[2]),
        ("height", "width", "resample"),
        tuple((*size, code) for size in _SIZES for code in FILTERS),
        size=target_size,
    ),
    ResampleOp(
        "resize_box",
        lambda image, params: image.resize((params[1], params[0]), params[2], params[3]),
        ("height", "width", "resample", "box"),
        tuple((*_SIZES[code % 4], code, (1.25, 0.5, 40.0, 30.75)) for code in FILTERS),
        size=target_size,
    ),
    EffectOp(
        "reduce",
        lambda image, params: image.reduce(params),
        ("across", "down"),
        ((2, 2), (3, 1), (1, 5), (7, 4), (90, 80)),
        size=lambda size, params: (-(-size[0] // params[1]), -(-size[1] // params[0])),
        kind="torchvision",
    ),
    _picked("nearest", InterpolationMode.NEAREST, lambda old, new, other: resample.nearest(old, new)),
    _picked("nearest_exact", InterpolationMode.NEAREST_EXACT, resample.nearest_exact),
)
