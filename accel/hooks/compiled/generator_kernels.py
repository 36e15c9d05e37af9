"""The outputs of torch's CPU generator (a Mersenne Twister) from its state, by numba; ``tape_trials`` compares them.

A state is the address of the bytes that ``torch.Generator.get_state`` returns, which are 64-bit words: a seed, the
outputs left and a flag (32 bits each), the place of the next one, the words of the twister, and what only normal
distributions use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.native.intrinsics import emitted

_LEFT, _NEXT, _FIRST, _WORDS = 1, 2, 3, 632
_SIZE, _AHEAD = 624, 397
_LOW, _HIGHEST, _OTHERS = 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF
_OF_FLOAT = (1 << 24) - 1  # the bits of an output that make a float32 between 0 and 1
_BEHIND, _HALF = 0x1FFFFFFF, 0x10000000  # the bits of a float64 that a float32 lacks


@emitted(types.CPointer(types.int64), types.int64)
def _words(builder: ir.IRBuilder, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@njit
def advance(before: int, state: int, size: int, work: Any, most: int, count: int) -> Any:
    """Take ``count`` outputs from a state of so many bytes, unless others have taken some since it was ``before``.

    ``work``: int64 [WORDS], working memory.

    Returns:
        0: they are taken, and the state is as torch leaves it. Else nothing is done, and this is the number of outputs
        that others have taken; -1: more than ``most``, or they changed it otherwise; -2: it is no state.
    """
    words = _words(state)
    if not _is_one(words, size) or len(work) != _WORDS:
        return -2
    _copy(_words(before), work)
    taken = _taken(work, words, most)
    while taken == 0 and count > 0:
        count -= _forward(words, count)
    return taken


@njit
def _taken(state: Any, later: Any, most: int) -> Any:
    """The number of outputs, at most ``most``, that lead from one state, which is changed, to another; -1: none do."""
    for i in range(_WORDS):
        if state[i] != later[i] and i not in (_NEXT, _LEFT) and not _FIRST <= i < _FIRST + _SIZE:
            return -1
    passed = 0
    while not _same_words(state, later):
        passed += (state[_LEFT] & _LOW) - 1
        if passed >= most:
            return -1
        _refill(state)
    taken = later[_NEXT] - state[_NEXT]
    if taken < 0 or later[_LEFT] + taken != state[_LEFT] or passed + taken > most:
        return -1
    return passed + taken


@njit
def _same_words(one: Any, other: Any) -> Any:
    different = 0
    for i in range(_FIRST, _FIRST + _SIZE):
        different += one[i] != other[i]
    return different == 0


@njit
def _copy(state: Any, work: Any) -> None:
    for i in range(_WORDS):
        work[i] = state[i]


@njit
def read(state: int, size: int, work: Any, outputs: Any) -> Any:
    """Fill ``outputs`` with the next ones of a state of so many bytes, which is not changed.

    ``work``: int64 [WORDS], working memory. Returns 1, or -1: it is no state.
    """
    words = _words(state)
    if not _is_one(words, size) or len(work) != _WORDS:
        return -1
    _copy(words, work)
    done = 0
    while done < len(outputs):
        taken = _forward(work, len(outputs) - done)
        begin = _FIRST + work[_NEXT] - taken
        for i in range(taken):
            outputs[done + i] = _tempered(work[begin + i])
        done += taken
    return 1


@njit
def scale(outputs: Any, low: Any, high: Any, found: Any) -> Any:
    """Fill ``found`` (float32) with the outputs as numbers between bounds: multiplied and added, then rounded once.

    Returns 1, or 0 if one cannot be told: its value in float64 is half-way between two float32, or it is rounded to the
    upper bound, which some versions of torch replace.
    """
    last = np.float32(high)
    first, factor = np.float64(np.float32(low)), np.float64(np.float32(high) - np.float32(low)) / (_OF_FLOAT + 1)
    told = True
    for i in range(len(outputs)):
        exactly = (outputs[i] & _OF_FLOAT) * factor + first
        found[i] = exactly
        told &= _bits(exactly) & _BEHIND != _HALF and found[i] != last
    return told


@emitted(types.int64, types.float64)
def _bits(builder: ir.IRBuilder, number: Any) -> Any:
    return builder.bitcast(number, ir.IntType(64))


@njit
def _is_one(state: Any, size: int) -> Any:
    """Whether all places in a state are within it."""
    if size != 8 * _WORDS:
        return False
    left, following = state[_LEFT] & _LOW, state[_NEXT]
    return 1 <= left <= _SIZE and following >= 0 and left + following <= _SIZE + 1


@njit
def _forward(state: Any, most: int) -> Any:
    """Move a state on by at most so many outputs, which lie one after another before the next one; return how many."""
    if state[_LEFT] & _LOW == 1:
        _refill(state)
    count = min(most, (state[_LEFT] & _LOW) - 1)
    state[_LEFT] -= count
    state[_NEXT] += count
    return count


@njit
def _refill(state: Any) -> None:
    """Have a state without outputs left give the next ones, the first of which must be taken at once."""
    state[_LEFT] += _SIZE + 1 - (state[_LEFT] & _LOW)
    state[_NEXT] = 0
    _twist(state)


@njit
def _twist(state: Any) -> None:
    """Make the next words of the twister of the last ones."""
    for i in range(_SIZE - _AHEAD):
        state[_FIRST + i] = state[_FIRST + i + _AHEAD] ^ _mixed(state[_FIRST + i], state[_FIRST + i + 1])
    for i in range(_SIZE - _AHEAD, _SIZE - 1):
        state[_FIRST + i] = state[_FIRST + i + _AHEAD - _SIZE] ^ _mixed(state[_FIRST + i], state[_FIRST + i + 1])
    last = _FIRST + _SIZE - 1
    state[last] = state[_FIRST + _AHEAD - 1] ^ _mixed(state[last], state[_FIRST])


@njit
def _mixed(one: int, other: int) -> Any:
    return (((one & _HIGHEST) | (other & _OTHERS)) >> 1) ^ ((other & 1) * 0x9908B0DF)


@njit
def _tempered(word: int) -> Any:
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)
