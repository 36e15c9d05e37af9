"""Signatures of compiled functions, shared by ``units``, ``compiling``, and ``calls`` with their kernels.

A signature has one word for each parameter: a number ("int", "float", "bool", or a NumPy code such as "f4"), or a
C-contiguous array: its items' NumPy code ("any": only address and shape matter), in brackets its number of dimensions,
and "w" if it is written to, as in "u1[3]w". Functions return an int, or nothing, which becomes 0.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

WRONG, FAILED = -(1 << 63), -(1 << 63) + 1
"""Results that report errors: an argument is not the array that it should be; numba's code raised."""

FIRST = 2
"""Of a call's words (``calls``, ``call_kernels``), the one of the first parameter."""

HEAD = object.__basicsize__
"""Bytes of an array object before its own fields: address of the items, dimensions, address of the sizes, ..."""


class Parameter(NamedTuple):
    """A word of a signature: the NumPy code of the number or the items, the dimensions of the array (0: a number)."""

    code: str
    dimensions: int
    is_any: bool
    is_written: bool


@cache
def parameters(signature: str) -> tuple[Parameter, ...]:
    return tuple(map(_parameter, signature.split()))


def _parameter(word: str) -> Parameter:
    name, _, rest = word.partition("[")
    code = {"int": "i8", "float": "f8", "bool": "?", "any": "u1"}.get(name, name)
    return Parameter(code, int(rest[0]) if rest else 0, name == "any", rest.endswith("w"))
