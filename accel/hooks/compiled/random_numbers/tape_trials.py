"""Trials of what tapes rely on: how many outputs a draw takes, and that many drawn at once equal those drawn singly."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch

from accel.hooks.compiled.random_numbers.tape import Tape

_TRIED = 200


def outputs(draw: Callable[[torch.Generator], object]) -> int:
    """The number of outputs that a function takes from a generator; -1 if it varies, or changes more of the state."""
    counts = {_count(draw, seed) for seed in range(3)}
    return counts.pop() if len(counts) == 1 else -1


def _count(draw: Callable[[torch.Generator], object], seed: int) -> int:
    one, other = (torch.Generator().manual_seed(seed) for _ in range(2))
    draw(one)
    for number in range(1000):
        if torch.equal(one.get_state(), other.get_state()):
            return number
        torch.empty(1, dtype=torch.float32).uniform_(generator=other)
    return -1


@cache
def agrees() -> bool:
    """Whether draws one at a time equal those of a tape in every bit; tried once, on a separate generator."""
    one, other = (torch.Generator().manual_seed(2**40 + 7) for _ in range(2))
    for each in (one, other):
        torch.randn(1, generator=each)  # the state has the second of two normal numbers
    tape = Tape(one.get_state(), 3 * _TRIED)
    bounds = (0.08, 1.0), (math.log(3 / 4), math.log(4 / 3)), (-2.5, 1.25), (0.0, 1.0)
    value = torch.empty(1, dtype=torch.float32, device="cpu")  # whatever the defaults are now
    for number in range(_TRIED):
        low, high = bounds[number % len(bounds)]
        drawn = value.uniform_(low, high, generator=one).item()
        grown = torch.exp(value.uniform_(low, high, generator=one)).item()
        limit = (number * number * 977 + 1) % ((1 << 28) - 1) + 1
        placed = torch.randint(0, limit, size=(1,), generator=one, device="cpu").item()
        if (drawn, grown, placed) != (tape.uniform((low, high)), tape.exp((low, high)), tape.below(limit)):
            return False
    expected = (tape.outputs() & (1 << 31) - 1).tolist()
    at_once = torch.empty(3 * _TRIED, dtype=torch.int32, device="cpu").random_(generator=other).tolist()
    states = [each.get_state() for each in (one, other)]
    return at_once == expected and all(torch.equal(tape.after(), state) for state in states)
