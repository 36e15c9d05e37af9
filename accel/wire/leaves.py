"""What a message's header says of a sample: values as JSON, and a number in place of each array.

JSON's own values stand for themselves. All others are lists that begin with a name: ``["tuple", 1, 2]``,
``["dict", ["label", 3]]``, ``["tensor", 0]`` (array 0 of the message), ``["dtype", "F32"]``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode

from accel.errors import require
from accel.wire.frame import DTYPES, MOST_AXES, NAMES, Array, array_of, taken, tensor_of

_MOST_KEYS = 1000
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class Encoder:
    """Makes values JSON, and collects their arrays.

    Attributes:
        arrays: the arrays so far.
    """

    def __init__(self) -> None:
        self.arrays: list[Array] = []

    def leaf(self, value: Any) -> Any:
        """The JSON of a value of another type; None: it is not sent."""
        return None

    def array(self, array: Array) -> int:
        """Add an array; return its number."""
        if len(array.shape) > MOST_AXES:
            raise TypeError(f"accel.wire sends no arrays of {len(array.shape)} axes")
        self.arrays.append(array)
        return len(self.arrays) - 1

    def value(self, value: Any) -> Any:
        """The JSON of a value.

        Raises:
            TypeError: values of this type are not sent.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str) or (kind is float and isfinite(value)):
            return value
        if kind in (list, tuple):
            return [kind.__name__, *map(self.value, value)]
        if kind is dict:
            check_keys([*value])
            return ["dict", *([self.value(key), self.value(each)] for key, each in value.items())]
        if kind is float:
            return ["float", str(value)]
        if kind is bytes:
            return ["bytes", self.array(Array("U8", (len(value),), np.frombuffer(value, np.uint8)))]
        if kind is torch.dtype and value in NAMES:
            return ["dtype", NAMES[value]]
        if kind is InterpolationMode:
            return ["interpolation", value.value]
        if (found := self.leaf(value)) is not None:
            return found
        if kind in (np.ndarray, np.memmap) or isinstance(value, np.generic):
            name = "scalar" if isinstance(value, np.generic) else "array"
            return [name, self.array(array_of(torch.from_numpy(np.array(value, order="C"))))]
        if kind is torch.Tensor and value.layout == torch.strided and value.dtype in NAMES:
            axes = sorted(range(value.ndim), key=value.stride().__getitem__, reverse=True)  # as they lie in memory
            in_order = value.is_contiguous() or not value.permute(axes).is_contiguous()
            if not in_order:
                return ["permuted", self.value(value.permute(axes)), *map(axes.index, range(value.ndim))]
            return ["tensor", self.array(array_of(value))]
        raise TypeError(f"accel.wire sends no {kind.__name__}")


class Decoder:
    """Makes values of JSON; whatever is wrong raises ``ValueError``, ``TypeError`` or ``LookupError``.

    Attributes:
        arrays: those of the message that were not taken yet.
    """

    def __init__(self, arrays: dict[int, Array]) -> None:
        self.arrays = arrays

    def leaf(self, name: Any, *rest: Any) -> Any:
        """The value of another name."""
        raise ValueError(f"there is no {name!r} among values")

    def value(self, found: Any) -> Any:
        """The value of its JSON."""
        if type(found) is not list:
            require(type(found) is not dict, "an object in place of a value")
            return found
        name, *rest = found
        if name in ("list", "tuple"):
            values = [self.value(each) for each in rest]
            return values if name == "list" else tuple(values)
        if name == "dict":
            check_keys([key for key, _ in rest])
            return {self.value(key): self.value(each) for key, each in rest}
        if name == "permuted":
            values = self.value(rest[0])
            require(isinstance(values, torch.Tensor) and sorted(rest[1:]) == [*range(values.ndim)], "it has no order")
            return values.permute(rest[1:])
        if name in _KNOWN:
            return _KNOWN[name](*rest)
        if name in _OF_ARRAYS and len(rest) == 1:
            return _OF_ARRAYS[name](taken(self.arrays, *rest))
        return self.leaf(name, *rest)


def check_keys(keys: list[Any]) -> None:
    """Raise ``ValueError`` for many keys of a dictionary that are no strings, whose hashes could be made alike."""
    most = len(keys) <= _MOST_KEYS or sum(type(key) is not str for key in keys) <= _MOST_KEYS
    require(most, f"a dictionary has more than {_MOST_KEYS} keys that are no strings")


_KNOWN: dict[str, Callable[..., Any]] = {
    "float": lambda name: _FLOATS[name],
    "dtype": lambda name: DTYPES[name],
    "interpolation": InterpolationMode,
}
_OF_ARRAYS: dict[str, Callable[[Array], Any]] = {
    "bytes": lambda array: array.content.tobytes(),
    "tensor": tensor_of,
    "array": lambda array: tensor_of(array).numpy(),
    "scalar": lambda array: tensor_of(array).numpy()[()],
}
