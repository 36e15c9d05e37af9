"""DALI's operators: one function for each operator of an ``OperatorChain``.

A function gets the images so far (``x``, uint8 [height, width, channels] unless it says otherwise), its fixed arguments
and its inputs: for each a batch of numbers, one row for every image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.dali.operator_chain import Numbers


class Input(NamedTuple):
    """One input of an operator: the type of its numbers, and their count for an image (0 for a scalar)."""

    dtype: type[np.generic]
    length: int

    def batch(self, rows: Sequence[Numbers]) -> npt.NDArray[Any]:
        """The numbers of all images, as an array for DALI."""
        array = np.array(rows, self.dtype)
        return array if self.length else array[:, 0]


_FLAG, _NUMBER = Input(np.int32, 0), Input(np.float32, 0)
_BYTE, _PLACE, _SIZES = Input(np.uint8, 0), Input(np.int32, 2), Input(np.float32, 2)


class Kit(NamedTuple):
    """DALI's modules, from which operators are made, and whether these run on the host."""

    fn: Any
    types: Any
    math: Any
    on_host: bool


Function = Callable[[Kit, Any, tuple[Any, ...], Sequence[Any]], Any]


def _pad(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    border = {"out_of_bounds_policy": "pad", "fill_values": list(map(float, static[0]))}
    return kit.fn.slice(x, start=fed[0], shape=fed[1], axes=(0, 1), **border)


def _resize(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    kind, antialias = static
    region = {"size": fed[0], "roi_start": fed[1], "roi_end": fed[2]}
    return kit.fn.resize(x, **region, interp_type=getattr(kit.types, f"INTERP_{kind}"), antialias=antialias)


def _normalize(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    dtype, interleaved, mean, std = static
    made = {"dtype": getattr(kit.types, dtype), "output_layout": "HWC" if interleaved else "CHW"}
    return kit.fn.crop_mirror_normalize(x, mirror=fed[0], mean=list(mean), std=list(std), **made)


def _erase(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    return kit.fn.erase(x, anchor=fed[0], shape=fed[1], fill_value=fed[2], axis_names="HW")


def _line(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    return kit.fn.brightness_contrast(x, brightness=fed[0], brightness_shift=fed[1] / 255.0)


def _fold(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    high = kit.fn.cast(x >= fed[0], dtype=kit.types.UINT8)
    return x ^ (high * kit.types.Constant(255, dtype=kit.types.UINT8))


def _power(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    exponent, gain = fed
    return _below(kit, kit.math.pow(x / 255.0, exponent) * (255.0 * gain))


def _below(kit: Kit, values: Any) -> Any:
    """Values as bytes: clipped, and rounded down as Pillow does, while DALI's cast rounds to the nearest."""
    return kit.fn.cast(values - 0.4999, dtype=kit.types.UINT8)


def _contrast(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    (channels,) = static
    grey = x if channels == 1 else _grey(kit, x, (), ())
    mean = kit.fn.reductions.mean(grey)
    return _blend(kit, kit.fn.cast(mean, dtype=kit.types.UINT8), x, fed[0])


def _blend(kit: Kit, grey: Any, x: Any, factor: Any) -> Any:
    """Blend grey and the image, by a factor that may be above 1."""
    return _below(kit, grey + (kit.fn.cast(x, dtype=kit.types.FLOAT) - grey) * factor)


def _grey(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    return kit.fn.color_space_conversion(x, image_type=kit.types.RGB, output_type=kit.types.GRAY)


def _autocontrast(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    low, high = (reduce(x, axes=(0, 1), keep_dims=True) for reduce in (kit.fn.reductions.min, kit.fn.reductions.max))
    span = kit.fn.cast(high, dtype=kit.types.FLOAT) - low
    flat = kit.fn.cast(span == 0.0, dtype=kit.types.FLOAT)
    stretched = (x - kit.fn.cast(low, dtype=kit.types.FLOAT)) * (255.0 / (span + flat))
    return _below(kit, stretched + flat * x)


def _sharpness(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    factor, weights, corner, inside, outside, size = fed
    weights = kit.fn.reshape(weights, shape=[3, 3])
    smooth = kit.fn.filter(x, weights if kit.on_host else weights.gpu(), mode="valid")
    smooth = kit.fn.slice(smooth, start=outside, shape=size, axes=(0, 1), out_of_bounds_policy="pad")
    border = kit.fn.erase(x, anchor=corner, shape=inside, axis_names="HW", fill_value=0)
    return _blend(kit, smooth + border, x, factor)


def _warp(kit: Kit, x: Any, static: Any, fed: Any) -> Any:
    kind, fill = static
    warped = kit.fn.warp_affine(
        x,
        matrix=kit.fn.reshape(fed[0], shape=[2, 3]),
        size=fed[1],
        fill_value=fill,
        inverse_map=True,  # the matrix leads from the result to the image
        interp_type=getattr(kit.types, f"INTERP_{kind}"),
        dtype=kit.types.UINT8 if kind == "NN" else kit.types.FLOAT,
    )
    return warped if kind == "NN" else _below(kit, warped)


class Definition(NamedTuple):
    """A kind of operator: the function that makes it, and its inputs."""

    make: Function
    inputs: tuple[Input, ...] = ()


OPERATORS: dict[str, Definition] = {
    "crop": Definition(
        lambda kit, x, _, fed: kit.fn.slice(x, start=fed[0], shape=fed[1], axes=(0, 1)), (_PLACE, _PLACE)
    ),
    "flip": Definition(lambda kit, x, _, fed: kit.fn.flip(x, horizontal=fed[0], vertical=fed[1]), (_FLAG, _FLAG)),
    "pad": Definition(_pad, (_PLACE, _PLACE)),
    "resize": Definition(_resize, (_SIZES, _SIZES, _SIZES)),
    "crop_mirror_normalize": Definition(_normalize, (_FLAG,)),
    "erase": Definition(_erase, (_SIZES, _SIZES, Input(np.float32, -1))),
    "line": Definition(_line, (_NUMBER, _NUMBER)),
    "mask": Definition(lambda kit, x, _, fed: x & fed[0], (_BYTE,)),
    "fold": Definition(_fold, (_BYTE,)),
    "power": Definition(_power, (_NUMBER, _NUMBER)),
    "contrast": Definition(_contrast, (_NUMBER,)),
    "grey": Definition(_grey),
    "colour": Definition(lambda kit, x, _, fed: kit.fn.cat(x, x, x, axis=2)),
    "saturation": Definition(lambda kit, x, _, fed: _blend(kit, _grey(kit, x, (), ()), x, fed[0]), (_NUMBER,)),
    "autocontrast": Definition(_autocontrast),
    "equalize": Definition(lambda kit, x, _, fed: kit.fn.equalize(x)),
    "sharpness": Definition(_sharpness, (_NUMBER, Input(np.float32, 9), _SIZES, _SIZES, _PLACE, _PLACE)),
    "gaussian_blur": Definition(
        lambda kit, x, _, fed: kit.fn.gaussian_blur(x, window_size=fed[0], sigma=fed[1]), (_PLACE, _SIZES)
    ),
    "warp_affine": Definition(_warp, (Input(np.float32, 6), _SIZES)),
    "transpose": Definition(lambda kit, x, _, fed: kit.fn.transpose(x, perm=[1, 0, 2], transpose_layout=False)),
    "permute": Definition(lambda kit, x, order, fed: kit.fn.cat(*(x[:, :, each : each + 1] for each in order), axis=2)),
    "jpeg_compression_distortion": Definition(
        lambda kit, x, _, fed: kit.fn.jpeg_compression_distortion(x, quality=fed[0]), (_FLAG,)
    ),
}
"""All kinds of operators, by their names in an ``OperatorChain``."""
