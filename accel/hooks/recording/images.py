"""Recorders that several of torchvision's modules share: functions on lazy Pillow images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accel.hooks.patch import Function
from accel.hooks.recording.calls import Call
from accel.lazy.from_pixels import lazy_image
from accel.lazy.image import LazyImage
from accel.ops import OPS, LutOp, Op, Params
from accel.ops.row import Accept, Picture
from accel.planning import lut


def by_methods(original: Function, img: Any, *args: Any, **kwargs: Any) -> Any:
    """A function on Pillow images that calls nothing but their methods, which record."""
    lazy = lazy_image(img)
    if lazy is None:
        return original(img, *args, **kwargs)
    result = original(lazy, *args, **kwargs)
    return img if result is lazy else result


def recorder(row: Op, accept: Accept, lazy_only: bool = False) -> Callable[[Function], Function]:
    """What makes the recorder of a function of a Pillow image that does what the row says.

    Args:
        row: the row.
        accept: the check of the function's arguments.
        lazy_only: eager images stay what they are.
    """

    def instead(original: Function) -> Function:
        call = Call.of(original, accept)

        def function(*args: Any, **kwargs: Any) -> Any:
            if call.first in kwargs:
                args = (kwargs.pop(call.first), *args)
            image = args[0] if args else None
            lazy = lazy_image(image) if not lazy_only or is_lazy(image) else None
            if lazy is not None:
                width, height = lazy.size
                picture = Picture((len(lazy.getbands()), height, width))
                params = call.params(picture, args[1:], kwargs)
                if params is not None and _makes_levels(row, params, picture.shape[0]):
                    return recorded(lazy, row.name, params)
            return original(*args, **kwargs)  # which also raises what is to be raised

        return function

    return instead


def _makes_levels(row: Op, params: Params, channels: int) -> bool:
    """Whether Pillow takes these parameters, where the op is a table of levels (which will be wanted anyway)."""
    if isinstance(row, LutOp):
        try:
            lut.table(row.name, params, channels)
        except Exception:
            return False  # the original says what is wrong
    return True


def is_lazy(image: Any) -> bool:
    return isinstance(image, LazyImage) and image.recipe is not None


def recorded(image: LazyImage, name: str, params: Params) -> LazyImage:
    """A lazy image with one of these ops recorded."""
    channels = OPS[name].channels(3 if image.mode == "RGB" else 1, params)
    return image.then(name, params, "RGB" if channels == 3 else "L")
