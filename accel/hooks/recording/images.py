"""Recorders that several of torchvision's modules share: functions on lazy Pillow images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchvision.transforms import InterpolationMode

from accel.hooks.patch import Function
from accel.hooks.recording.calls import Call
from accel.lazy.from_pixels import lazy_image
from accel.lazy.image import LazyImage
from accel.ops import Op, Params
from accel.ops.row import Accept, LutOp, Picture
from accel.planning import lut


def by_methods(original: Function, img: Any, *args: Any, **kwargs: Any) -> Any:
    """A function on Pillow images that calls nothing but their methods, which record."""
    lazy = lazy_image(img)
    if lazy is None:
        return original(img, *args, **kwargs)
    result = original(lazy, *args, **kwargs)
    return img if result is lazy else result


def resized_crop(
    codes: Mapping[Any, int],
    original: Function,
    img: Any,
    top: Any,
    left: Any,
    height: Any,
    width: Any,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    *antialias: Any,
    **kwargs: Any,
) -> Any:
    """``resized_crop`` in its usual form, without the checks on the way; ``codes``: Pillow's, of interpolations."""
    code = codes.get(interpolation) if is_lazy(img) else None
    if code is not None and False not in antialias and kwargs.get("antialias") is not False:
        lazy = img.crop_and_resize(top, left, height, width, size, code)
        if lazy is not None:
            return lazy
    return original(img, top, left, height, width, size, interpolation, *antialias, **kwargs)


def recorder(row: Op, accept: Accept, lazy_only: bool = False) -> Callable[[Function], Function]:
    """What makes the recorder of a function of a Pillow image that does what the row says.

    Args:
        row: the row.
        accept: the check of the function's arguments.
        lazy_only: eager images stay what they are.
    """

    def instead(original: Function) -> Function:
        call, is_lut = Call.of(original, accept), isinstance(row, LutOp)

        def function(*args: Any, **kwargs: Any) -> Any:
            if call.first in kwargs:
                args = (kwargs.pop(call.first), *args)
            image = args[0] if args else None
            lazy = lazy_image(image) if not lazy_only or is_lazy(image) else None
            if lazy is not None:
                width, height = lazy.size
                channels = 3 if lazy.mode == "RGB" else 1
                params = call.params(Picture((channels, height, width)), args[1:], kwargs)
                if params is not None and (not is_lut or _makes_levels(row.name, params, channels)):
                    return lazy.then(row.name, params, "RGB" if row.channels(channels, params) == 3 else "L")
            return original(*args, **kwargs)  # which also raises what is to be raised

        return function

    return instead


def _makes_levels(name: str, params: Params, channels: int) -> bool:
    """Whether Pillow takes these parameters of an op that is a table of levels (which will be wanted anyway)."""
    try:
        lut.table(name, params, channels)
    except Exception:
        return False  # the original says what is wrong
    return True


def is_lazy(image: Any) -> bool:
    return isinstance(image, LazyImage) and image.recipe is not None
