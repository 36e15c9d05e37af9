"""The outputs of torch's CPU generator (a Mersenne Twister) from its state, by numba; ``tape_trials`` compares them.

A state is the address of the bytes that ``torch.Generator.get_state`` returns, which are 64-bit words: a seed, the
outputs left and a flag (32 bits each), the place of the next one, the words of the twister, and what only normal
distributions use.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types

from accel.native.intrinsics import emitted

_LEFT, _NEXT, _FIRST, _WORDS = 1, 2, 3, 632
_SIZE, _AHEAD = 624, 397
_LOW, _HIGHEST, _OTHERS = 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF


@emitted(types.CPointer(types.int64), types.int64)
def _words(builder: ir.IRBuilder, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@njit
def advance(before: int, state: int, size: int, count: int) -> Any:
    """Take ``count`` outputs from a state of so many bytes, which is then as torch leaves it.

    Returns:
        1; 0, with nothing done: it is another state than ``before``; -1: it is none.
    """
    known, words = _words(before), _words(state)
    if not _is_one(words, size):
        return -1
    for i in range(_WORDS):
        if words[i] != known[i]:
            return 0
    while count > 0:
        count -= _forward(words, count)
    return 1


@njit
def read(state: int, size: int, work: Any, outputs: Any) -> Any:
    """Fill ``outputs`` with the next ones of a state of so many bytes, which is not changed.

    ``work``: int64 [WORDS], working memory. Returns 1, or -1: it is no state.
    """
    words = _words(state)
    if not _is_one(words, size) or len(work) != _WORDS:
        return -1
    for i in range(_WORDS):
        work[i] = words[i]
    done = 0
    while done < len(outputs):
        taken = _forward(work, len(outputs) - done)
        begin = _FIRST + work[_NEXT] - taken
        for i in range(taken):
            outputs[done + i] = _tempered(work[begin + i])
        done += taken
    return 1


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
    left = state[_LEFT] & _LOW
    if left == 1:
        _twist(state)
        state[_LEFT] += _SIZE
        left, state[_NEXT] = _SIZE + 1, 0
    count = min(most, left - 1)
    state[_LEFT] -= count
    state[_NEXT] += count
    return count


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
