"""Recorders that several of torchvision's modules share: calls that are steps, and functions on lazy Pillow images."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from accel.hooks.patch import Function
from accel.lazy.from_pixels import lazy_image
from accel.lazy.image import LazyImage
from accel.ops import Op, Params
from accel.ops.accept import NotFinite
from accel.ops.row import Accept, LutOp, Picture, Subject
from accel.planning import lut


class Call(NamedTuple):
    """How a function is called.

    Attributes:
        first: its first parameter, the image. names: those after it. defaults: of those that have one.
        accept: the row's check.
    """

    first: str
    names: tuple[str, ...]
    defaults: dict[str, Any]
    accept: Accept

    @staticmethod
    def of(function: Callable[..., Any], accept: Accept) -> Call:
        first, *others = inspect.signature(function).parameters.values()
        defaults = {each.name: each.default for each in others if each.default is not each.empty}
        return Call(first.name, tuple([each.name for each in others]), defaults, accept)

    def params(self, of: Subject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Params | None:
        """The parameters of the step to record, from the arguments after the first; None: it is not recorded.

        Raises:
            NotFinite: one is NaN or infinite.
        """
        others = self.names[len(args) :]
        if kwargs or others or len(args) > len(self.names):
            rest = {**self.defaults, **kwargs}
            if len(args) > len(self.names) or not kwargs.keys() <= set(others) <= rest.keys():
                return None
            args = (*args, *[rest[name] for name in others])
        try:
            return self.accept(of, args)
        except NotFinite:
            raise
        except Exception:
            return None  # the original says what is wrong


def by_methods(original: Function, img: Any, *args: Any, **kwargs: Any) -> Any:
    """A function on Pillow images that calls nothing but their methods, which record."""
    lazy = lazy_image(img)
    if lazy is None:
        return original(img, *args, **kwargs)
    result = original(lazy, *args, **kwargs)
    return img if result is lazy else result


def recorder(row: Op, accept: Accept, lazy_only: bool, original: Function) -> Function:
    """The recorder of a function of a Pillow image that does what the row says.

    Args:
        accept: the check of the function's arguments.
        lazy_only: eager images stay what they are.
    """
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


def _makes_levels(name: str, params: Params, channels: int) -> bool:
    """Whether Pillow takes these parameters of an op that is a table of levels (which will be wanted anyway)."""
    try:
        lut.table(name, params, channels)
    except Exception:
        return False  # the original says what is wrong
    return True


def is_lazy(image: Any) -> bool:
    return isinstance(image, LazyImage) and image.recipe is not None
