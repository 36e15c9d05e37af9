"""``calls`` in compiled code: making a call, and changing its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types

from accel.system.native.intrinsics import emitted
from accel.system.native.signatures import FIRST, HEAD, parameters

_WORD, _FLOAT = ir.IntType(64), ir.DoubleType()


@emitted(types.int64, types.int64)
def word_at(builder: ir.IRBuilder, address: Any) -> Any:
    """The int64 at an address."""
    return builder.load(builder.inttoptr(address, _WORD.as_pointer()))


@emitted(types.void, types.int64, types.int64)
def put_word(builder: ir.IRBuilder, address: Any, value: Any) -> None:
    """Write an int64 to an address."""
    builder.store(value, builder.inttoptr(address, _WORD.as_pointer()))


@emitted(types.int64, types.float64)
def float_bits(builder: ir.IRBuilder, value: Any) -> Any:
    """The bits of a float as a word."""
    return builder.bitcast(value, _WORD)


def caller(signature: str) -> Callable[..., Any]:
    """A compiled function that makes a call of a function with this signature, given a pointer to the call's words."""
    floats = [not parameter.dimensions and parameter.code[0] == "f" for parameter in parameters(signature)]
    kinds = [_WORD, *(_FLOAT if is_float else _WORD for is_float in floats)]

    @emitted(types.int64, None)
    def called(builder: ir.IRBuilder, words: Any) -> Any:
        found = [builder.load(builder.gep(words, [ir.Constant(_WORD, place)])) for place in range(1 + len(kinds))]
        function = builder.inttoptr(found[0], ir.FunctionType(_WORD, kinds).as_pointer())
        made = [builder.bitcast(word, kind) for word, kind in zip(found[1:], kinds, strict=True)]
        return builder.call(function, made)

    return called  # type: ignore[no-any-return]


@njit
def show(words: Any, place: int, address: int, first: int, second: int = 0, third: int = 0) -> None:
    """Set the address and the shape of the array that stands in for a parameter."""
    array = words[FIRST + place] + HEAD
    sizes = word_at(array + 16)
    put_word(array, address)
    put_word(sizes, first)
    put_word(sizes + 8, second)
    put_word(sizes + 16, third)


@njit
def length(words: Any, place: int) -> Any:
    """The length of the first axis of the array that is passed as a parameter."""
    return word_at(word_at(words[FIRST + place] + HEAD + 16))


@njit
def address(words: Any, place: int) -> Any:
    """The address of the first item of the array that is passed as a parameter."""
    return word_at(words[FIRST + place] + HEAD)
