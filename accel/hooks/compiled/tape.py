"""Tapes: the next outputs of torch's generator, read ahead for any kind of draw, and drawn only for a whole batch.

Each draw of one number takes one output of the generator. So torch itself, asked for many numbers from a generator in
the same state, gives the result of any kind of draw at any place. Only ``generator_state`` knows what a state consists
of: it draws outputs in a fraction of the time that torch takes for a call.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from accel.hooks.compiled import generator_state
from accel.system import fork

Bounds = tuple[float, float]
Kind = tuple[bool, Bounds]
"""A kind of draw: whether the exponential is taken, and the bounds."""
UNIT: Bounds = (0.0, 1.0)
T = TypeVar("T")


class Tape:
    """The next outputs of the CPU's default generator, as float32 and int64. They are not drawn before ``commit``.

    Attributes:
        length: the number of outputs. at: how many of them have been used.
    """

    def __init__(self, state: torch.Tensor, length: int) -> None:
        self.at = 0
        self._state, self.length = state, length
        self._state_then = state  # of the generator when the outputs up to ``_committed`` were drawn
        self._follower: torch.Generator | None = None
        self._followed = self._committed = 0
        self._calm = 0  # the number of batches since others have drawn
        self._python: random.Random | None = None
        self._uniform: dict[Bounds, memoryview] = {}  # whose items are Python floats
        self._exp: dict[Bounds, memoryview] = {}
        self._tables: dict[tuple[Kind, ...], npt.NDArray[np.float32]] = {}
        self._outputs: npt.NDArray[np.int64] | None = None
        self._raw: memoryview | None = None

    @property
    def left(self) -> int:
        """The number of outputs that have not been used."""
        return self.length - self.at

    def uniform(self, bounds: Bounds) -> float:
        """``torch.empty(1).uniform_(*bounds).item()``."""
        values = self._uniform.get(bounds) or self._uniforms(bounds)
        self.at += 1
        return values[self.at - 1]

    def exp(self, bounds: Bounds) -> float:
        """``torch.exp(torch.empty(1).uniform_(*bounds)).item()``."""
        values = self._exp.get(bounds) or self._exps(bounds)
        self.at += 1
        return values[self.at - 1]

    def below(self, limit: int) -> int:
        """``torch.randint(0, limit, (1,)).item()``, for limits below 2**28."""
        values = self._raw or self.outputs().data
        self.at += 1
        return values[self.at - 1] % limit

    def tables(self, kinds: tuple[Kind, ...]) -> npt.NDArray[np.float32]:
        """The results of ``uniform`` or ``exp`` at every place, float32 [kinds, length]."""
        found = self._tables.get(kinds)
        if found is None:
            rows = [np.asarray(self._exps(bounds) if is_exp else self._uniforms(bounds)) for is_exp, bounds in kinds]
            found = self._tables[kinds] = np.array(rows, np.float32).reshape(len(kinds), self.length)
        return found

    def _uniforms(self, bounds: Bounds) -> memoryview:
        found = self._uniform.get(bounds)
        if found is None:
            found = self._uniform[bounds] = self._floats(bounds).data
        return found

    def _exps(self, bounds: Bounds) -> memoryview:
        if bounds not in self._exp:
            values = self._floats(bounds)
            for begin in range(0, self.length, _OF_ONE_THREAD):
                torch.from_numpy(values[begin : begin + _OF_ONE_THREAD]).exp_()
            self._exp[bounds] = values.data
        return self._exp[bounds]

    def outputs(self) -> npt.NDArray[np.int64]:
        """The generator's 32-bit outputs, int64 [length], of which ``below`` returns the remainder."""
        if self._outputs is None:
            self._outputs = generator_state.outputs(self._state, self.length)
            self._raw = self._outputs.data
        return self._outputs

    def once(self, bounds: Bounds) -> float:
        """``uniform`` for bounds that will not be used again."""
        scaled = _scaled(self.uniform(UNIT), bounds) if _scales() else None
        if scaled is not None:
            return scaled
        self.at -= _scales()  # ``uniform`` has advanced it
        return self.by(lambda generator: _uniform(bounds, generator), 1)

    def by(self, draw: Callable[[torch.Generator], T], outputs: int) -> T:
        """The result of a function that draws so many outputs from the generator that it is given."""
        drawn = draw(self._follow())
        self.at = self._followed = self.at + outputs
        return drawn

    @property
    def python(self) -> random.Random:
        """A generator with the state of Python's ``random``, which ``commit`` writes back."""
        if self._python is None:
            self._python = random.Random()
            self._python.setstate(random.getstate())
        return self._python

    def _floats(self, bounds: Bounds) -> npt.NDArray[np.float32]:
        """The results of ``uniform`` at every place."""
        found = np.empty(self.length, np.float32)
        if not (_scales() and generator_state.scaled(self.outputs(), bounds, found)):
            generator = torch.Generator()
            generator.set_state(self._state)
            torch.from_numpy(found).uniform_(*bounds, generator=generator)
        return found

    def _follow(self) -> torch.Generator:
        """A generator in the state that the default one has when the used outputs are drawn."""
        if self._follower is None:
            self._follower = torch.Generator()
            self._follower.set_state(self._state)
        if self.at > self._followed:
            torch.empty(self.at - self._followed, dtype=torch.float32).uniform_(generator=self._follower)
            self._followed = self.at
        return self._follower

    def after(self) -> torch.Tensor:
        """The default generator's state when the used outputs are drawn."""
        return self._follow().get_state()

    def commit(self) -> bool:
        """Draw the used outputs from the generators; the rest is kept for the next tape that is asked for.

        Return False, with nothing drawn, if others have drawn since the last batch: the used outputs are then not those
        that the generator gives, and the batch must be drawn again.
        """
        if self.at > self._committed:
            state, count = torch.default_generator.get_state(), self.at - self._committed
            if taken := generator_state.advance(self._state_then, state, count, count):
                _last[:] = [self] if self._moves(state, taken) else []
                return False
            torch.default_generator.set_state(state)
            self._state_then, self._committed = state, self.at
        if self._python is not None:
            random.setstate(self._python.getstate())
            self._python = None
        if self._calm:
            _waits.end()
        self._calm += 1
        if self.length and _waits.over():
            _last[:] = [self]
        return True

    def goes_on(self, most: int) -> bool:
        """Whether the generator will give the outputs that are left, as far as can be said before they are used.

        If others have drawn before the last batch, what they drew since, at most so many outputs, is left out.
        """
        if self._calm > 1:
            return True  # ``commit`` will find out
        state = torch.default_generator.get_state()
        taken = generator_state.advance(self._state_then, state, 0, most)
        return not taken or self._moves(state, taken)

    def _moves(self, state: torch.Tensor, taken: int) -> bool:
        """Leave out the outputs that others have taken; False: they are too many (-1). ``state``: the generator's."""
        if taken < 0:
            _waits.double()
            return False
        self._state_then, self._committed, self._calm = state, self._committed + taken, 0
        self.at, self._follower, self._followed, self._python = self._committed, None, 0, None
        return True


_OF_ONE_THREAD = 2048
"""The most numbers that torch computes by one thread: waking others would take longer."""

in_turn = fork.Lock()
"""Held while a batch reads ahead until it commits, else two threads would draw the same numbers; and while a trial has
changed the generators' states."""

_last: list[Tape] = []
_MOST = 1 << 14  # the most outputs read ahead beyond need: four times as many as last time, if nothing else draws


class _Waits:
    """The number of batches for which no tape is kept, because others draw between batches."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Keep the next tape, and forget for how long none was kept."""
        self._left = self._last = 0

    def double(self) -> None:
        """Wait for about twice as many batches as last time, at most ``_LONGEST``."""
        self._left = self._last = min(2 * self._last + 1, _LONGEST)

    def end(self) -> None:
        """Have the next wait be short again: nobody else has drawn."""
        self._last = 0

    def over(self) -> bool:
        """Count a batch, and return whether its tape is kept."""
        self._left = max(self._left - 1, -1)
        return self._left < 0


_waits = _Waits()
_LONGEST = 64


def of_default(needed: int) -> Tape:
    """A tape of the default generator's next outputs, at least as many as needed.

    It is the last one that was committed, if enough of it is left; its ``commit`` finds out if others have drawn since.
    """
    last = _last.pop() if _last else None
    if last is None or not last.goes_on(needed):
        return Tape(torch.default_generator.get_state(), needed)
    if last.left >= needed:
        return last
    longer = Tape(torch.default_generator.get_state(), max(needed, min(4 * last.length, _MOST)))
    longer._calm = last._calm
    return longer


def forget() -> None:
    """Drop the kept tape, so that the next one that is asked for is new."""
    _last.clear()
    _waits.reset()


def rounded(probability: float) -> float:
    """A probability as float32, as ``torch.rand(1) < probability`` compares with it."""
    return torch.tensor(probability, dtype=torch.float32, device="cpu").item()


def _uniform(bounds: Bounds, generator: torch.Generator) -> float:
    return torch.empty(1, dtype=torch.float32).uniform_(*bounds, generator=generator).item()


def _scaled(drawn: float, bounds: Bounds) -> float | None:
    """A draw between 0 and 1 scaled to other bounds: multiplied and added in float32, rounded once.

    None if it cannot be told: its value in float64, where the product is exact, is half-way between two float32, or it
    is rounded to the upper bound, which some versions of torch replace.
    """
    low, high = np.float32(bounds[0]), np.float32(bounds[1])
    exactly = drawn * float(high - low) + float(low)
    half = struct.unpack("<q", struct.pack("<d", exactly))[0] & 0x1FFFFFFF == 0x10000000
    rounded = np.float32(exactly)
    return None if half or rounded == high else float(rounded)


@cache
def _scales() -> bool:
    """Whether torch computes as ``_scaled`` on this processor; tried once, on separate generators."""
    for number in range(_TRIED):
        bounds = -number * 1.7 - 0.01, number * number * 0.37 + 0.1
        one, other = (torch.Generator().manual_seed(number) for _ in range(2))
        if _scaled(_uniform(UNIT, other), bounds) not in (None, _uniform(bounds, one)):
            return False
    return True


_TRIED = 200
