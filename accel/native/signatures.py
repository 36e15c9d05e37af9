"""Signatures of compiled functions: what ``units`` and ``compiling`` agree upon.

A signature has one word for each parameter: a number ("int", "float", "bool", or a NumPy code such as "f4"), or a
C-contiguous array: its items' NumPy code ("any": its address and shape are all that counts), in brackets its number of
dimensions, and "w" if it is written to, as in "u1[3]w". Functions return an int, or nothing, which is 0.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

WRONG, FAILED = -(1 << 63), -(1 << 63) + 1
"""The results that say that an argument is not the array that it should be, and that numba's code raised."""


class Parameter(NamedTuple):
    """A word of a signature: the NumPy code of a number or of items; dimensions of an array, 0 for a number."""

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
