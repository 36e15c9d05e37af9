"""Running a plan's effects on one image: by compiled kernels, or by Pillow if the installed version differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO

import numpy as np
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2.functional import elastic_image

from accel.backends.shared import box_blur, gaussian
from accel.backends.shared.pixels import Pixels, by_pillow, image_of
from accel.codec import decode
from accel.codec.header import claim
from accel.ops import OPS
from accel.ops.row import Params
from accel.planning import lut
from accel.planning.plan import Plan
from accel.planning.stages import Effect, Levels
from accel.system import arithmetic, counters
from accel.system.native import units
from accel.system.private_names import private

F_t = private("torchvision.transforms._functional_tensor", "elastic_transform")


Kernel = Callable[[Pixels, Params, Pixels], object]


def _unit(name: str, seconds: float) -> units.Unit:
    shared = "backends/cpu/simd.py", "system/native/simd.py", "backends/shared/numba_memory.py"
    return units.Unit(name, f"backends/cpu/effect_{name}.py", *shared, seconds=seconds, makes_arrays=True)


_COLOUR, _FILTER, _WARP = _unit("colour", 2.5), _unit("filter", 1), _unit("warp", 1.5)


def _compiled(unit: units.Unit, name: str, signature: str) -> units.Function:
    """A function of the file that is named like the unit, which documents it; its arrays are C-contiguous."""
    return unit.function(f"backends.cpu.effect_{unit.name}", name, signature)


_mean_luma = _compiled(_COLOUR, "mean_luma", "u1[3]")
_look_up = _compiled(_COLOUR, "look_up", "u1[3] u1[2] u1[3]w")
_blur_down = _compiled(_FILTER, "blur_down", "u1[3] int int int int u1[3]w u1[3]w")
_blur_across = _compiled(_FILTER, "blur_across", "u1[3] int int int int u1[3]w u1[2]w u1[3]w")
_affine_nearest = _compiled(_WARP, "affine_nearest", "u1[3] f8[1] u1[1] u1[3]w")
_warped = _compiled(_WARP, "warp", "u1[3] f8[1] int u1[1] u1[3]w")


def run(pixels: Pixels, effect: Effect) -> tuple[Pixels, Levels | None]:
    """Run an effect on pixels [height, width, channels]; return new pixels, and a table to look them up in, or None.

    The given pixels are not changed.
    """
    top, left, height, width = effect.box
    pixels = np.ascontiguousarray(pixels[top : top + height, left : left + width])
    if effect.op in KERNELS or effect.op in STATISTICS:
        if is_known(effect):
            return _run(pixels, effect.op, effect.params)
        if effect.op == "gaussian_blur":
            counters.fallback(gaussian.UNKNOWN)
    return by_pillow(pixels, effect.op, effect.params), None


def is_known(effect: Effect) -> bool:
    """Whether the kernel equals the installed libraries for an image of this size."""
    shape = (*effect.box[2:], effect.channels)
    return (effect.op != "gaussian_blur" or gaussian.order_of(effect.params, shape) is not None) and agrees(effect.op)


def left_to_torchvision(plan: Plan) -> list[str]:
    """Lines for ``accel.explain`` about the effects that torchvision runs."""
    stages = (stage for decode in plan.decodes for item in decode.items for stage in item.stages)
    ops = {stage.op for stage in stages if isinstance(stage, Effect) and stage.op in KERNELS and not is_known(stage)}
    return [f"not by accel: {', '.join(sorted(ops))}; torchvision runs it, as accel does not know how"] if ops else []


def looked_up(pixels: Pixels, table: Levels | None) -> Pixels:
    if table is None:
        return pixels
    out = np.empty_like(pixels)
    _look_up(np.ascontiguousarray(pixels), table, out)
    return out


def _run(pixels: Pixels, name: str, params: Params) -> tuple[Pixels, Levels | None]:
    if name in STATISTICS:
        return pixels, STATISTICS[name](pixels, params)
    op = OPS[name]
    assert not op.keeps(pixels.shape[2], params), "what changes nothing is in no plan"
    height, width = op.size(pixels.shape[:2], params)
    out = np.empty((height, width, op.channels(pixels.shape[2], params)), np.uint8)
    KERNELS[name](pixels, params, out)
    return out, None


# -- one line for each --------------------------------------------------------------------------------------


def _table_by(kernel: str) -> Callable[[Pixels, Params], Levels]:
    function = _compiled(_COLOUR, kernel, "u1[3] u1[2]w")

    def statistic(pixels: Pixels, params: Params) -> Levels:
        table = np.empty((pixels.shape[2], 256), np.uint8)
        function(pixels, table)
        return table

    return statistic


def _warp(pixels: Pixels, params: Params, out: Pixels) -> None:
    """An affine transform, with six coefficients, or a perspective one, with eight."""
    matrix, resample, fill = params[2:]
    coefficients, colour = np.array(matrix, np.float64), np.resize(np.array(fill, np.uint8), pixels.shape[2])
    if resample or len(coefficients) == 8:
        _warped(pixels, coefficients, int(resample), colour, out)
    else:
        _affine_nearest(pixels, coefficients, colour, out)


def _elastic(pixels: Pixels, params: Params, out: Pixels) -> None:
    """Run torchvision's own functions on tensors, as it does for Pillow images."""
    displacement, interpolation, fill, version = params
    writable = pixels if pixels.flags.writeable else pixels.copy()  # torch warns of read-only arrays
    image = torch.from_numpy(writable).permute(2, 0, 1)
    with arithmetic.by_default():
        if version == 1:
            result = F_t.elastic_transform(image, displacement, interpolation, fill)
        else:
            result = elastic_image(image, displacement, InterpolationMode(interpolation), fill)
    torch.from_numpy(out).copy_(result.permute(1, 2, 0))


def _jpeg(pixels: Pixels, params: Params, out: Pixels) -> None:
    """Encode by Pillow, as torchvision does, and decode the file as any other."""
    file = BytesIO()
    image_of(pixels).save(file, format="JPEG", quality=params[0])
    data = file.getvalue()
    header = claim(data)
    assert header is not None, "a baseline file, with its end"
    out[:] = decode.decode(data, header, (0, 0, *pixels.shape[:2]), pixels.shape[2])


def _blur(pixels: Pixels, params: Params, out: Pixels) -> None:
    order = gaussian.order_of(params, pixels.shape)
    if order is None:
        out[:] = by_pillow(pixels, "gaussian_blur", params)
    else:
        gaussian.blur(pixels, *gaussian.prepared(params, order), out)


def _box_blur(pixels: Pixels, radii: Sequence[float], passes: int, out: Pixels) -> None:
    height, width, channels = pixels.shape
    if radii[0]:
        strips = np.empty((2, width + 16, 16 * channels), np.uint8)
        lines = np.empty((16, (width * channels + 15) // 16 * 16), np.uint8)
        _blur_across(pixels, passes, *box_blur.weights(radii[0]), strips, lines, out)
        pixels = out
    if radii[1]:
        _blur_down(pixels, passes, *box_blur.weights(radii[1]), np.empty((2, height, 64), np.uint8), out)
    elif pixels is not out:
        out[:] = pixels


def _by(
    unit: units.Unit, name: str, more: str = "", arguments: Callable[[Params], tuple[object, ...]] = lambda params: ()
) -> Kernel:
    """A kernel from a compiled function of pixels, ``more`` arguments made from the parameters, and the result."""
    function = _compiled(unit, name, f"u1[3] {more} u1[3]w")
    return lambda pixels, params, out: function(pixels, *arguments(params), out)


_GREY = _by(_COLOUR, "grey")

STATISTICS: dict[str, Callable[[Pixels, Params], Levels]] = {
    "adjust_contrast": lambda pixels, params: lut.towards(_mean_luma(pixels), params[0], pixels.shape[2]),
    "autocontrast": _table_by("autocontrast_table"),
    "equalize": _table_by("equalize_table"),
}

KERNELS: dict[str, Kernel] = {
    "convert": _GREY,
    "adjust_saturation": _by(_COLOUR, "saturate", "f4", lambda params: (float(params[0]),)),
    "adjust_hue": _by(_COLOUR, "shift_hue", "i4", lambda params: (int(params[0] * 255) & 255,)),
    "to_grayscale": _GREY,
    "permute_channels": _by(_COLOUR, "permute", "i8[1]", lambda params: (np.array(params[0], np.int64),)),
    "adjust_sharpness": _by(_FILTER, "sharpen", "f4", lambda params: (float(params[0]),)),
    "gaussian_blur": _blur,
    "box_blur": lambda pixels, params, out: _box_blur(pixels, params, 1, out),
    "pillow_gaussian_blur": lambda pixels, params, out: _box_blur(
        pixels, [box_blur.radius_of(sigma) for sigma in params], box_blur.PASSES, out
    ),
    "affine": _warp,
    "perspective": _warp,
    "elastic": _elastic,
    "transpose": _by(_WARP, "transpose"),
    "jpeg": _jpeg,
}


# -- should a version of Pillow or torchvision ever do it in another way ---------------------------------------


@cache
def agrees(name: str) -> bool:
    """Whether an effect's kernel equals the installed library, on a small picture with all of the op's samples."""
    op = OPS[name]
    picture = np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)
    picture[:9, :17] = 250  # flat, and clipped
    picture[9:] //= 2
    for params in op.samples:
        for pixels in (picture, np.ascontiguousarray(picture[:, :, :1]))[: 1 if name == "permute_channels" else 2]:
            if op.keeps(pixels.shape[2], params):
                continue
            found, table = _run(pixels, name, params)
            wanted = by_pillow(pixels, name, params)
            if found.shape != wanted.shape or not np.array_equal(looked_up(found, table), wanted):
                counters.fallback(f"the installed Pillow runs {name} in a way that accel does not know; Pillow runs it")
                return False
    return True
