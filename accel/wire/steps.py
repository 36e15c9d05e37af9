"""Which steps of a message are taken: those that accel would have recorded on such an image itself.

The functions that record a step check its parameters: they are asked again, and must give the very same step. Steps
that have no such function have a rule here. Sizes are bounded in both cases, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import isfinite
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from PIL import Image

from accel.codec.header import LARGEST_SIDE
from accel.errors import require
from accel.lazy import pillow_methods
from accel.ops import LEFT, OPS, Params, shape_after, values
from accel.ops.filters import kernel
from accel.ops.geometry import FILTERS
from accel.ops.memory_layout import Layout
from accel.ops.resample import Aten
from accel.ops.row import KernelOp, Op, Picture, Shape, TensorOp, ValueOp
from accel.ops.tensors import DTYPES, frozen, thawed
from accel.ops.warp import accepted_displacement
from accel.planning import order
from accel.recipes.recipe import Step

MOST_STEPS = 64  # of an image
_MOST_THREADS = 1 << 10
_FARTHEST = 1 << 24  # pixels, of a crop from its image


class Values(NamedTuple):
    """A tensor for the checks of arguments; ``shape``: (channels, height, width) of each image."""

    shape: Shape
    dtype: torch.dtype


Subject = Picture | Values
"""An image before a step: a Pillow image, or a tensor."""


def after(subject: Subject, steps: Sequence[Step]) -> Subject:
    """The image after steps that accel would have recorded.

    Raises:
        ValueError: it would not have recorded one of them.
    """
    require(len(steps) <= MOST_STEPS, f"an image has {len(steps)} steps")
    check_size(*subject.shape[1:])
    for number, step in enumerate(steps):
        try:
            subject = _after(subject, step, steps[:number])
        except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, AttributeError) as error:
            raise ValueError(f"its step {step[0]!r} is none that accel records: {error}") from error
    return subject


def check_size(height: int, width: int) -> None:
    """Raise ``ValueError`` for the size of a picture that is beyond Pillow's limit, or a JPEG file's."""
    limit = Image.MAX_IMAGE_PIXELS
    require(0 < height <= LARGEST_SIDE and 0 < width <= LARGEST_SIDE, f"a picture of {width} x {height} pixels")
    within = limit is None or height * width <= 2 * limit  # as Pillow, which raises above twice the number
    require(within, f"a picture of {width} x {height} pixels is beyond Pillow's limit")


def check_layout(layout: Layout, shape: Shape) -> None:
    """Raise ``ValueError`` if a tensor of this shape cannot lie so in memory."""
    interleaved, transposed, whole, expanded = layout
    require({bool} == {*map(type, (interleaved, transposed, expanded))}, "its memory has no order")
    if whole is not None:
        require(len(whole) == 2 and are_ints(*whole), "its memory has no size")
        check_size(*whole)
        require(whole[0] >= shape[1] and whole[1] >= shape[2], "its memory is too small")


def _after(subject: Subject, step: Step, before: Sequence[Step]) -> Subject:
    name, params = step
    op = OPS[name]
    require(name not in LEFT, "torchvision runs it itself")
    require(len(params) == len(op.params), "it has other parameters")
    is_tensor, on_values = isinstance(subject, Values), isinstance(op, TensorOp)
    if on_values:
        require(is_tensor != (name in _TO_TENSOR), "it is for another kind of image")
        require(not isinstance(op, KernelOp) or subject.dtype in DTYPES, f"not for {subject.dtype}")
    else:
        leads = not is_tensor or order.may_lead((step,), tuple(before), subject.shape[1:])
        require(leads, "it comes too late")
    rule = _RULES.get(name)
    require(_is_recorded(op, subject, params) if rule is None else rule(subject, *params), "its parameters are wrong")
    shape = shape_after(subject.shape, step)
    check_size(*shape[1:])
    require(shape[0] in (1, 3), f"it makes {shape[0]} channels")
    if not on_values:
        return subject._replace(shape=shape)
    if isinstance(op, ValueOp):
        return Values(shape, _dtype(op, subject.shape[0], subject.dtype, params))
    return Values(shape, torch.uint8 if name == "to_levels" else subject.dtype)


@lru_cache(maxsize=256)
def _dtype(op: ValueOp, channels: int, dtype: torch.dtype, params: Params) -> torch.dtype:
    """The dtype after a step on values, which is tried on one pixel; raises what torchvision raises."""
    made: torch.dtype = op.apply(torch.zeros((channels, 1, 1), dtype=dtype, device="cpu"), *params).dtype
    require(made.itemsize <= 8, f"there are no tables of {made}")
    return made


def _is_recorded(op: Op, subject: Subject, params: Params) -> bool:
    """Whether one of the functions that record just this op records it with these parameters."""
    given = tuple(map(thawed, params))
    return any(_are_same(accept(subject, given), params) for accept in op.hooks.values())


def _are_same(found: Any, params: Any) -> bool:
    """Whether parameters are the same, of the same types; of tensors only dtype and shape."""
    found = frozen(found)
    if type(found) is not type(params):
        return False
    if isinstance(found, tuple):
        return len(found) == len(params) and all(map(_are_same, found, params))
    if isinstance(found, torch.Tensor):
        return bool(found.dtype == params.dtype and found.shape == params.shape)
    return bool(found == params)


# -- rules: (image, *parameters) -> whether they are right -----------------------------------------------------


def are_ints(*numbers: Any, least: int = 0, most: int = LARGEST_SIDE) -> bool:
    return all(type(number) is int and least <= number <= most for number in numbers)


def _are_floats(*numbers: Any) -> bool:
    return all(type(number) is float and isfinite(number) for number in numbers)


def _sizes(of: Subject, height: Any, width: Any) -> bool:
    return are_ints(height, width, least=1)


def _crop(of: Subject, top: Any, left: Any, height: Any, width: Any) -> bool:
    return are_ints(top, left, least=-_FARTHEST, most=_FARTHEST) and _sizes(of, height, width)


def _pad(of: Subject, left: Any, top: Any, right: Any, bottom: Any, mode: Any, fill: Any) -> bool:
    constant = mode == "constant"
    possible = constant or (mode in ("edge", "reflect", "symmetric") and fill is None)
    return possible and are_ints(left, top, right, bottom) and (fill is None or _is_colour(of, fill))


def _is_colour(of: Subject, fill: Any) -> bool:
    return type(fill) is tuple and len(fill) in (1, of.shape[0]) and are_ints(*fill, most=255)


def _resize(of: Subject, height: Any, width: Any, code: Any) -> bool:
    known = code in FILTERS or (code in [*Aten] and isinstance(of, Values))
    return type(code) is int and known and _sizes(of, height, width)


def _is_method(of: Subject, step: Step, method: Callable[..., Any], *args: Any) -> bool:
    """Whether a method of Pillow's images, called with these arguments, is recorded as just this step."""
    channels, height, width = of.shape
    mode = "RGB" if channels == 3 else "L"
    image: Any = SimpleNamespace(mode=mode, size=(width, height), getbands=lambda: tuple(mode))
    return _are_same(method(image, *args), (step,))


def _resize_tensor(name: str, of: Subject, size: Any, mode: Any, *more: Any) -> bool:
    *largest, antialias = more
    sizes = (*(size if type(size) is tuple else (size,)), *(each for each in largest if each is not None))
    are = are_ints(*sizes, least=1) and type(antialias) in (bool, type(None))
    return are and _is_recorded(OPS[name], of, (size, mode, *more))


def _reduce(of: Subject, *factors: Any) -> bool:
    return are_ints(*factors, least=1) and _is_method(of, ("reduce", factors), pillow_methods.reduce, factors)


def _resize_box(of: Subject, height: Any, width: Any, code: Any, box: Any) -> bool:
    step = "resize_box", (height, width, code, box)
    return _sizes(of, height, width) and _is_method(of, step, pillow_methods.resize, (width, height), code, box)


def _scale(of: Subject, height: Any, width: Any, scale: Any, fill: Any) -> bool:
    matrix = scale[0], 0.0, scale[1], 0.0, *scale[2:]
    return _is_warp(of, ("scale_nearest", (height, width, scale, fill)), Image.Transform.AFFINE, matrix, 0)


def _warp(name: str, kind: Any, of: Subject, height: Any, width: Any, matrix: Any, code: Any, fill: Any) -> bool:
    return _is_warp(of, (name, (height, width, matrix, code, fill)), kind, matrix, code)


def _is_warp(of: Subject, step: Step, kind: Any, matrix: Any, code: Any) -> bool:
    (height, width, *_, fill) = step[1]
    if not (_sizes(of, height, width) and _are_floats(*matrix) and max(map(abs, matrix)) <= _FARTHEST):
        return False
    colour = fill if _is_colour(of, fill) else (0,)
    return _is_method(of, step, pillow_methods.transform, (width, height), kind, matrix, code, 1, colour)


def _blur(of: Subject, across: Any, down: Any, sigma_x: Any, sigma_y: Any, version: Any) -> bool:
    params = across, down, sigma_x, sigma_y  # of v1 and v2, whatever autocast is here
    return are_ints(version, least=1, most=2) and _are_same(kernel(of, (params[:2], params[2:])), params)


def _radii(of: Subject, across: Any, down: Any) -> bool:
    return _are_floats(across, down) and 0 <= across < 1 << 15 and 0 <= down < 1 << 15


def _elastic(of: Subject, displacement: Any, mode: Any, fill: Any, version: Any) -> bool:
    params = displacement, mode, fill  # of v1 and v2, whatever the default dtype is here
    return are_ints(version, least=1, most=2) and _are_same(accepted_displacement(of, params), (*params, mode))


def _erase(of: Subject, *params: Any) -> bool:
    return _are_same(values.erased(of, (*params, False)), params)


def _cast(of: Subject, dtype: Any, scale: Any = False) -> bool:
    return isinstance(dtype, torch.dtype) and type(scale) is bool


def _normalize(of: Subject, mean: Any, std: Any) -> bool:
    listed = type(mean) is tuple is type(std) and len(mean) in (1, of.shape[0]) and len(std) in (1, of.shape[0])
    return of.dtype.is_floating_point and listed and _are_floats(*mean, *std)


def _noise(of: Subject, noise: Any, clip: Any) -> bool:
    return isinstance(noise, torch.Tensor) and tuple(noise.shape) == of.shape and type(clip) is bool


def _in_memory(of: Subject, *layout: Any) -> bool:
    check_layout(Layout(*layout), of.shape)
    return True


_TO_TENSOR = frozenset({"to_tensor", "pil_to_tensor"})
_RULES: Mapping[str, Callable[..., bool]] = {
    "convert": lambda of, mode: mode == "RGB",
    "crop": _crop,
    **dict.fromkeys(("hflip", "vflip", "transpose", "pil_to_tensor"), lambda of: True),
    "to_levels": lambda of: of.dtype == torch.uint8 or of.dtype.is_floating_point,
    "pad": _pad,
    **dict.fromkeys(("resize_nearest", "nearest", "nearest_exact"), _sizes),
    "resize": _resize,
    **{name: partial(_resize_tensor, name) for name in ("v1.resize", "v2.resize")},
    "resize_box": _resize_box,
    "reduce": _reduce,
    "to_grayscale": lambda of, channels: are_ints(channels) and channels in (1, 3),
    "point": lambda of, levels: type(levels) is bytes and len(levels) == 256 * of.shape[0],
    "gaussian_blur": _blur,
    **dict.fromkeys(("box_blur", "pillow_gaussian_blur"), _radii),
    "scale_nearest": _scale,
    "affine": partial(_warp, "affine", Image.Transform.AFFINE),
    "perspective": partial(_warp, "perspective", Image.Transform.PERSPECTIVE),
    "elastic": _elastic,
    **dict.fromkeys(("erase", "erase_image"), _erase),
    "to_tensor": lambda of, dtype: isinstance(dtype, torch.dtype) and dtype.is_floating_point,
    **dict.fromkeys(("convert_image_dtype", "to_dtype", "to"), _cast),
    "normalize": _normalize,
    "gaussian_noise": _noise,
    "in_memory": _in_memory,
    "threads": lambda of, number: are_ints(number, least=1, most=_MOST_THREADS),
}
