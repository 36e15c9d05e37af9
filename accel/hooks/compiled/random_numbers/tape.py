"""Tapes: the next outputs of the generators, read ahead for any kind of draw, and drawn only for a whole batch.

Each draw of one number takes one output of torch's generator. So torch itself, asked for many numbers from a generator
in the same state, gives the result of any kind of draw at any place. The generators that everybody uses are only ever
drawn from, by one call that nobody can come between: their states are never set, and no output is given out twice.
"""

from __future__ import annotations

import ctypes
import math
import random
import struct
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from accel.system import counters, fork

Bounds = tuple[float, float]
Distribution = tuple[bool, Bounds]
"""A kind of draw: whether the exponential is taken, and the bounds."""
UNIT: Bounds = (0.0, 1.0)
T = TypeVar("T")
Numbers = npt.NDArray[np.int64]


class Python(random.Random):
    """Python's generator, made of 32-bit outputs of another one. ``used``: these outputs."""

    def __init__(self, draw: Callable[[], int]) -> None:
        super().__init__(0)
        self._draw, self.used = draw, list[int]()

    def random(self) -> float:
        high, low = self.getrandbits(32) >> 5, self.getrandbits(32) >> 6
        return (high * (1 << 26) + low) / (1 << 53)

    def getrandbits(self, k: int) -> int:
        """At most 32 bits."""
        self.used.append(self._draw())
        return self.used[-1] >> (32 - k)


class Tape:
    """The next outputs of the CPU's default generator, as float32 and int64. They are not drawn before ``commit``.

    Attributes:
        length: the number of outputs. at: how many of them have been used.
    """

    def __init__(self, state: torch.Tensor, length: int, python: Any = random) -> None:
        """``python``: the generator of Python's whose outputs are read ahead."""
        self.at, self.length = 0, length
        self._state, self._random = state, python
        self._then = b""  # the default generator's state when the first ``_drawn`` outputs had been drawn
        self._drawn = 0
        self._follower: torch.Generator | None = None
        self._followed = 0
        self._python: Python | None = None
        self._uniform: dict[Bounds, memoryview] = {}  # whose items are Python floats
        self._exp: dict[Bounds, memoryview] = {}
        self._tables: dict[tuple[Distribution, ...], npt.NDArray[np.float32]] = {}
        self._outputs: Numbers | None = None
        self._raw: memoryview | None = None
        self._low: npt.NDArray[np.int32] | None = None

    def uniform(self, bounds: Bounds) -> float:
        """``torch.empty(1).uniform_(*bounds).item()``."""
        values = self._uniform.get(bounds) or self._values(False, bounds)
        self.at += 1
        return values[self.at - 1]

    def exp(self, bounds: Bounds) -> float:
        """``torch.exp(torch.empty(1).uniform_(*bounds)).item()``."""
        values = self._exp.get(bounds) or self._values(True, bounds)
        self.at += 1
        return values[self.at - 1]

    def below(self, limit: int) -> int:
        """``torch.randint(0, limit, (1,)).item()``, for limits below 2**28."""
        values = self._raw or self.outputs().data
        self.at += 1
        return values[self.at - 1] % limit

    def once(self, bounds: Bounds) -> float:
        """``uniform`` for bounds that will not be used again."""
        found = scaled(self.uniform(UNIT), bounds)
        if found is not None:
            return found
        self.at -= 1
        return self.by(lambda generator: _uniform(bounds, generator), 1)

    def by(self, draw: Callable[[torch.Generator], T], outputs: int) -> T:
        """The result of a function that draws so many outputs from the generator that it is given."""
        drawn = draw(self._follow())
        self.at = self._followed = self.at + outputs
        return drawn

    @property
    def python(self) -> Python:
        """The next outputs of Python's ``random``, which ``commit`` draws."""
        if self._python is None:
            ahead = random.Random()
            ahead.setstate(self._random.getstate())
            self._python = Python(lambda: ahead.getrandbits(32))
        return self._python

    def tables(self, kinds: tuple[Distribution, ...]) -> npt.NDArray[np.float32]:
        """The results of ``uniform`` or ``exp`` at every place, float32 [kinds, length]."""
        found = self._tables.get(kinds)
        if found is None:
            rows = [np.asarray(self._values(*kind)) for kind in kinds]
            found = self._tables[kinds] = np.array(rows, np.float32).reshape(len(kinds), self.length)
        return found

    def _values(self, is_exp: bool, bounds: Bounds) -> memoryview:
        """The results of ``uniform`` or ``exp`` at every place."""
        known = self._exp if is_exp else self._uniform
        if bounds not in known:
            values = np.empty(self.length, np.float32)
            torch.from_numpy(values).uniform_(*bounds, generator=separate(self._state))
            for begin in range(0, self.length if is_exp else 0, _OF_ONE_THREAD):
                torch.from_numpy(values[begin : begin + _OF_ONE_THREAD]).exp_()
            known[bounds] = values.data
        return known[bounds]

    def outputs(self) -> Numbers:
        """The generator's 32-bit outputs, int64 [length], of which ``below`` returns the remainder."""
        if self._outputs is None:
            pairs = np.empty((self.length + 1) // 2, np.int64)
            # all 64 bits of two outputs
            torch.from_numpy(pairs).random_(-(1 << 63), None, generator=separate(self._state))
            both = np.stack((pairs >> 32 & _ALL, pairs & _ALL), 1)
            self._outputs = both.reshape(-1)[: self.length]
            self._raw = self._outputs.data
        return self._outputs

    def _follow(self) -> torch.Generator:
        """A generator in the state that the default one has when the used outputs are drawn."""
        if self._follower is None:
            self._follower = separate(self._state)
        if self.at > self._followed:
            torch.empty(self.at - self._followed, dtype=torch.float32).uniform_(generator=self._follower)
            self._followed = self.at
        return self._follower

    def after(self) -> torch.Tensor:
        """The default generator's state when the used outputs are drawn."""
        return self._follow().get_state()

    def follows(self, state: torch.Tensor) -> bool:
        """Whether a generator in this state gives the outputs that are left; the last call was of ``commit``."""
        return _content(state) == self._then

    def commit(self) -> Instead | None:
        """Draw the used outputs from the generators; the rest is kept for the next tape that is asked for.

        Returns:
            None, or, if others drew while this was used, the outputs that were drawn instead: the batch must be drawn
            again from them (``live.Again``).
        """
        used, words = self._used(), [] if self._python is None else self._python.used
        drawn, drawn_words = _drawn(len(used)), _drawn_from_python(len(words))
        if drawn.tobytes() != used.tobytes() or drawn_words != words:
            counters.count(counters.DRAWN_AGAIN)
            return self._whole(drawn), drawn_words
        self._drawn, self._python = self.at, None
        if self.length:
            self._then = _content(default.get_state())
            _last[:] = [self]
        return None

    def _whole(self, drawn: npt.NDArray[np.int32]) -> list[int]:
        """Drawn outputs with their highest bits, unless others drew too much before them."""
        ahead = Tape(self._state, self.at + _MOST).outputs()[self._drawn :]
        low, count = ahead & _OF_INT32, len(drawn)
        for place in np.flatnonzero(low[: len(low) - count + 1] == drawn[0]) if count else ():
            if np.array_equal(low[place : place + count], drawn):
                return ahead[place : place + count].tolist()  # type: ignore[no-any-return]
        return drawn.tolist()  # type: ignore[no-any-return]

    def _used(self) -> npt.NDArray[np.int32]:
        """The used outputs that are not drawn yet, as ``_drawn`` returns them."""
        if self._low is None:
            self._low = (self.outputs() & _OF_INT32).astype(np.int32)
        return self._low[self._drawn : self.at]


default = torch.default_generator

Instead = tuple[list[int], list[int]]
"""Outputs of torch's generator, and of Python's."""

_ALL, _OF_INT32 = (1 << 32) - 1, (1 << 31) - 1
_OF_ONE_THREAD = 2048
"""The most numbers that torch computes by one thread: waking others would take longer."""

in_turn = fork.Lock()
"""Held while a batch reads ahead until it commits, else two threads would draw again and again."""

_last: list[Tape] = []
_MOST = 1 << 14  # the most outputs read ahead beyond need: four times as many as last time, if nothing else draws


def of_default(needed: int) -> Tape:
    """A tape of the default generator's next outputs, at least as many as needed.

    It is the last one that was committed, if nobody else has drawn since and enough of it is left.
    """
    state, last = default.get_state(), _last.pop() if _last else None
    if last is None or not last.follows(state):
        return Tape(state, needed)
    return last if last.length - last.at >= needed else Tape(state, max(needed, min(4 * last.length, _MOST)))


@lru_cache(maxsize=64)
def rounded(probability: float) -> float:
    """A probability as float32, as ``torch.rand(1) < probability`` compares with it."""
    return torch.tensor(probability, dtype=torch.float32, device="cpu").item()


def _drawn(count: int) -> npt.NDArray[np.int32]:
    """The next outputs of the default generator, without their highest bit, drawn so that nobody comes in between."""
    drawn = np.empty(count, np.int32)
    if count:
        torch.from_numpy(drawn).random_()
    return drawn


def _drawn_from_python(count: int) -> list[int]:
    """The next 32-bit outputs of Python's ``random``, drawn so that nobody comes in between."""
    drawn = random.getrandbits(32 * count).to_bytes(4 * count, "little") if count else b""
    return list(struct.unpack(f"<{count}I", drawn))


def _content(state: torch.Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.nbytes)  # ``state.numpy().tobytes()`` takes twice as long


def separate(state: torch.Tensor) -> torch.Generator:
    """A generator in this state, apart from all others."""
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def _uniform(bounds: Bounds, generator: torch.Generator) -> float:
    return torch.empty(1, dtype=torch.float32).uniform_(*bounds, generator=generator).item()


def scaled(drawn: float, bounds: Bounds) -> float | None:
    """A draw between 0 and 1 scaled to other bounds as torch does; None if it cannot be told."""
    return _scaled(drawn, bounds) if _scales() else None


def _scaled(drawn: float, bounds: Bounds) -> float | None:
    """A draw between 0 and 1 scaled to other bounds: multiplied and added in float32, rounded once.

    None if it cannot be told: its value in float64, where the product is exact, was rounded to be half-way between two
    float32, or it is rounded to the upper bound, which some versions of torch replace.
    """
    low, high = np.float32(bounds[0]), np.float32(bounds[1])
    factor, first = float(high - low), float(low)
    exactly = drawn * factor + first
    half = struct.unpack("<q", struct.pack("<d", exactly))[0] & 0x1FFFFFFF == 0x10000000
    half = half and Fraction(drawn) * Fraction(factor) + Fraction(first) != Fraction(exactly)
    rounded = np.float32(exactly)
    return None if half or rounded == high else float(rounded)


@cache
def _scales() -> bool:
    """Whether torch computes as ``_scaled`` on this processor; tried once, on separate generators."""
    for number in range(_TRIALS):
        bounds = -number * 1.7 - 0.01, number * number * 0.37 + 0.1
        one, other = (torch.Generator().manual_seed(number) for _ in range(2))
        if _scaled(_uniform(UNIT, other), bounds) not in (None, _uniform(bounds, one)):
            return False
    return True


_TRIALS = 200


# -- what tapes rely on: how many outputs a draw takes, and that many drawn at once equal those drawn singly ----


def outputs_of(draw: Callable[[torch.Generator], object]) -> int:
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
    tape = Tape(one.get_state(), 3 * _TRIALS)
    bounds = (0.08, 1.0), (math.log(3 / 4), math.log(4 / 3)), (-2.5, 1.25), (0.0, 1.0)
    value = torch.empty(1, dtype=torch.float32, device="cpu")  # whatever the defaults are now
    for number in range(_TRIALS):
        low, high = bounds[number % len(bounds)]
        drawn = value.uniform_(low, high, generator=one).item()
        grown = torch.exp(value.uniform_(low, high, generator=one)).item()
        limit = (number * number * 977 + 1) % ((1 << 28) - 1) + 1
        placed = torch.randint(0, limit, size=(1,), generator=one, device="cpu").item()
        if (drawn, grown, placed) != (tape.uniform((low, high)), tape.exp((low, high)), tape.below(limit)):
            return False
    expected = (tape.outputs() & (1 << 31) - 1).tolist()
    at_once = torch.empty(3 * _TRIALS, dtype=torch.int32, device="cpu").random_(generator=other).tolist()
    states = [each.get_state() for each in (one, other)]
    return at_once == expected and all(torch.equal(tape.after(), state) for state in states)
