"""Draws directly from the generators, one at a time, as torchvision makes them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from accel.hooks.compiled.random_numbers.tape import UNIT, Bounds, Python, Tape, default, scaled, separate
from accel.hooks.own_generators import Own, with_own

T = TypeVar("T")


class Live(Tape):
    """A tape whose values are drawn when they are read, for one thread. ``at``: how many of torch's were drawn."""

    def __init__(self) -> None:
        with torch.inference_mode(False):  # else the tensors could not be used outside of inference mode
            self._float = torch.empty(1, dtype=torch.float32, device="cpu")
            self._integer = torch.empty(1, dtype=torch.int64, device="cpu")
        self.at, self._python = 0, None

    def uniform(self, bounds: Bounds) -> float:
        self.at += 1
        return self._float.uniform_(*bounds).item()

    def once(self, bounds: Bounds) -> float:
        return self.uniform(bounds)

    def exp(self, bounds: Bounds) -> float:
        self.at += 1
        return self._float.uniform_(*bounds).exp_().item()

    def below(self, limit: int) -> int:
        self.at += 1
        return int(self._integer.random_(0, limit).item())

    def by(self, draw: Callable[[torch.Generator], T], outputs: int) -> T:
        self.at += outputs
        return draw(default)

    @property
    def python(self) -> Python:
        if self._python is None:
            self._python = Python(self._word)
        return self._python

    def _word(self) -> int:
        """The next output of Python's generator."""
        return random.getrandbits(32)


class Rewindable(Live):
    """A live tape that can give the numbers of an image again, if that is refused after some draws."""

    _python_state: Any

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        """Begin with another image."""
        self.at, self._state = 0, default.get_state()
        self._python = self._python_state = None

    def end(self) -> None:
        """Note that what was drawn is used."""
        self.at, self._python = 0, None

    @property
    def python(self) -> Python:
        if self._python is None:
            self._python_state = random.getstate()
        return super().python

    def left_to(self, call: Callable[..., T], transform: Any, *inputs: Any) -> T:
        """``call(transform, *inputs)``, which is given the numbers that were drawn since ``begin`` again.

        It draws them from generators of its own; what it draws beyond them is then drawn from everybody's. If others
        have drawn since ``begin``, the numbers are given to nobody, and the call draws as usual.
        """
        if not (self.at or self._python):
            return call(transform, *inputs)
        expected, at, used = separate(self._state), self.at, [] if self._python is None else self._python.used
        self.end()
        python = random.Random()
        if self._python_state is not None:
            python.setstate(self._python_state)
        own, again = separate(self._state), Python(lambda: python.getrandbits(32))
        torch.empty(at, dtype=torch.float32).uniform_(generator=expected)
        calm = torch.equal(expected.get_state(), default.get_state())
        if not calm or (used and random.getstate() != _after(self._python_state, len(used))):
            return call(transform, *inputs)
        try:
            with Own(own):
                return call(with_own(transform, again) if used else transform, *inputs)
        finally:
            _skip(expected, own.get_state())
            if len(again.used) > len(used):
                random.getrandbits(32 * (len(again.used) - len(used)))


def _after(state: Any, words: int) -> Any:
    """The state of a generator of Python's behind so many outputs."""
    generator = random.Random()
    generator.setstate(state)
    generator.getrandbits(32 * words)
    return generator.getstate()


def _skip(generator: torch.Generator, until: torch.Tensor) -> None:
    """Draw from the default generator what leads another one from its state to a later one."""
    for count in range(_MOST):
        if torch.equal(generator.get_state(), until):
            if count:
                torch.empty(count, dtype=torch.int32).random_()
            return
        torch.empty(1, dtype=torch.int32).random_(generator=generator)


_MOST = 1 << 12


class Again(Live):
    """A tape that begins with outputs that were drawn already: those that came instead of what was read ahead."""

    def __init__(self, outputs: Sequence[int], words: Sequence[int]) -> None:
        """``outputs``: of torch's generator. ``words``: of Python's."""
        super().__init__()
        self._next, self._words = [*reversed(outputs)], [*reversed(words)]

    def uniform(self, bounds: Bounds) -> float:
        if not self._next:
            return super().uniform(bounds)
        unit = (self._next.pop() & _OF_FLOAT) / (_OF_FLOAT + 1)
        found = unit if bounds == UNIT else scaled(unit, bounds)
        return super().uniform(bounds) if found is None else found

    def exp(self, bounds: Bounds) -> float:
        return torch.tensor([self.uniform(bounds)], dtype=torch.float32, device="cpu").exp_().item()

    def below(self, limit: int) -> int:
        return self._next.pop() % limit if self._next else super().below(limit)

    def by(self, draw: Callable[[torch.Generator], T], outputs: int) -> T:
        del self._next[max(len(self._next) - outputs, 0) :]  # which cannot be put into a generator
        return super().by(draw, outputs)

    def _word(self) -> int:
        return self._words.pop() if self._words else super()._word()

    def commit(self) -> None:
        """Do nothing: all is drawn."""


_OF_FLOAT = (1 << 24) - 1  # the bits of an output that make a float32 between 0 and 1


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.live, self.rewindable = Live(), Rewindable()


of_thread = _OfThread()
