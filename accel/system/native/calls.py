"""Calls from compiled code to another unit's functions: an address, and a word for each parameter.

A word is a number (a float by its bits), or the address of an array: of NumPy's object, or of words that stand in for
one and have all fields that ``entry`` (``compiling``) reads. Compiled code sets their address and shape, and makes the
call (``call_kernels``).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from accel.system.native.signatures import FIRST, HEAD, Parameter, parameters
from accel.system.native.units import Function

_OWN, _MOST = 7, 4  # the words of an array object that are read, and the most dimensions


class Call:
    """A call of a function, whose arguments stay from one call to the next unless they are changed.

    Attributes:
        words: int64 [n]: the function's address, the type of arrays, the word of each parameter (from ``FIRST`` on),
            and the words that stand in for arrays.
    """

    def __init__(self, function: Function, *given: Any) -> None:
        """``given``: for each parameter a number, an array, or None: compiled code will set the array (``show``)."""
        named = parameters(function.order[2])
        size = HEAD // 8 + _OWN + _MOST
        self._held: dict[int, Any] = {}
        at = FIRST + len(named)
        self.words = np.zeros(at + size * sum(value is None for value in given), np.int64)
        begin: int = self.words.__array_interface__["data"][0]
        words = [function.address, id(np.ndarray)]
        for place, (parameter, value) in enumerate(zip(named, given, strict=True)):
            if value is None:
                own, self._held[place] = _like(parameter)
                self.words[at : at + len(own)] = own
                self.words[at + HEAD // 8 + 2] = begin + 8 * (at + len(own))
                words.append(begin + 8 * at)
                at += size
            elif parameter.dimensions:
                self._held[place] = value
                words.append(id(value))
            else:
                words.append(int(np.float64(value).view(np.int64) if parameter.code[0] == "f" else value))
        self.words[: len(words)] = words

    def hold(self, place: int, array: Any) -> None:
        """Pass this array, and keep it alive as long as it is passed."""
        self._held[place] = array
        self.words[FIRST + place] = id(array)


@cache
def _like(parameter: Parameter) -> tuple[Any, np.dtype[Any]]:
    """The words of an array object for a parameter, up to its shape, and its dtype, which they refer to."""
    like: Any = np.empty((0,) * parameter.dimensions, parameter.code)
    return np.frombuffer(ctypes.string_at(id(like), HEAD + 8 * _OWN), np.int64), like.dtype
