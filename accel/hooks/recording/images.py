"""Recorders shared by the hooks of several of torchvision's modules: calls as steps, functions on lazy images."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from accel.codec.header import channels_of
from accel.hooks.patch import Function
from accel.lazy.from_pixels import lazy_image
from accel.lazy.image import LazyImage
from accel.ops import Op, Params
from accel.ops.accept import NotFinite
from accel.ops.row import Accept, LutOp, Picture, Subject
from accel.planning import lut


class Call(NamedTuple):
    """The signature of a function that records a step.

    Attributes:
        first: the name of its first parameter, the image. names: the others' names. defaults: their defaults, by name.
        accept: the row's check of the arguments.
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
        """The parameters of the step, from the arguments after the first; None if the call is not recorded.

        Raises:
            NotFinite: an argument is NaN or infinite.
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
            return None  # the original raises the right error


def by_methods(original: Function, img: Any, *args: Any, **kwargs: Any) -> Any:
    """A function on Pillow images that only calls their methods, which record."""
    lazy = lazy_image(img)
    if lazy is None:
        return original(img, *args, **kwargs)
    result = original(lazy, *args, **kwargs)
    return img if result is lazy else result


def recorder(row: Op, accept: Accept, lazy_only: bool, original: Function) -> Function:
    """A replacement for a function of a Pillow image, which records the row's op.

    Args:
        accept: the check of the function's arguments.
        lazy_only: whether calls on eager images are not recorded.
    """
    call, is_lut = Call.of(original, accept), isinstance(row, LutOp)

    def function(*args: Any, **kwargs: Any) -> Any:
        if call.first in kwargs:
            args = (kwargs.pop(call.first), *args)
        image = args[0] if args else None
        lazy = lazy_image(image) if not lazy_only or is_lazy(image) else None
        if lazy is not None:
            width, height = lazy.size
            channels = channels_of(lazy.mode)
            params = call.params(Picture((channels, height, width)), args[1:], kwargs)
            if params is not None and (not is_lut or _makes_levels(row.name, params, channels)):
                return lazy.then(row.name, params, "RGB" if row.channels(channels, params) == 3 else "L")
        return original(*args, **kwargs)  # which also raises errors

    return function


def _makes_levels(name: str, params: Params, channels: int) -> bool:
    """Whether the lookup table of an op can be made with these parameters; it is cached for the plan."""
    try:
        lut.table(name, params, channels)
    except Exception:
        return False  # the original raises the right error
    return True


def is_lazy(image: Any) -> bool:
    return isinstance(image, LazyImage) and image.recipe is not None
