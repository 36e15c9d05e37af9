"""Draws for a single image: directly from the generators, one at a time, as torchvision makes them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from accel.hooks.compiled.tape import Bounds, Tape

T = TypeVar("T")


class Live(Tape):
    """A tape whose values are drawn when they are read; ``take_back`` restores the generators.

    Each thread has one, for one image after another.
    """

    def __init__(self) -> None:
        with torch.inference_mode(False):  # else the tensors could not be used outside of inference mode
            self._float = torch.empty(1, dtype=torch.float32, device="cpu")
            self._integer = torch.empty(1, dtype=torch.int64, device="cpu")
        self._before: tuple[Any, Any] = None, None

    def begin(self) -> None:
        """Begin with another image."""
        self._before = torch.default_generator.get_state(), None

    def take_back(self) -> None:
        """Undo what was drawn since ``begin``."""
        state, python = self._before
        torch.default_generator.set_state(state)
        if python is not None:
            random.setstate(python)

    def uniform(self, bounds: Bounds) -> float:
        return self._float.uniform_(*bounds).item()

    once = uniform

    def exp(self, bounds: Bounds) -> float:
        return self._float.uniform_(*bounds).exp_().item()

    def below(self, limit: int) -> int:
        return int(self._integer.random_(0, limit).item())

    def by(self, draw: Callable[[torch.Generator], T], outputs: int) -> T:
        return draw(torch.default_generator)

    @property
    def python(self) -> Any:
        if self._before[1] is None:
            self._before = self._before[0], random.getstate()
        return random


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.live = Live()


of_thread = _OfThread()
