"""Imports and compilations at first use: forks wait until they are over.

A child forked in between would have a half made module or function, and a lock of Python's or numba's that is never
released in it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from threading import get_ident
from typing import Any

from accel.system import fork

importing = fork.Lock()
"""The lock to hold while something is imported at first use."""


@contextmanager
def drawing_nothing() -> Iterator[None]:
    """Take nothing from Python's ``random`` in this thread: some imports draw from it, rich's does.

    They draw from a generator of their own. Python's own state is never set back: other threads may draw meanwhile, and
    would be given the same numbers again.
    """
    own, thread = random.Random(), [get_ident()]
    theirs = {name: draw for name, draw in vars(random).items() if _is_everybodys(draw)}
    ours = {name: _by_thread(draw, getattr(own, name), thread) for name, draw in theirs.items()}
    vars(random).update(ours)
    try:
        yield
    finally:
        thread.clear()
        for name, draw in ours.items():
            if getattr(random, name) is draw:
                setattr(random, name, theirs[name])


def _by_thread(theirs: Callable[..., Any], own: Callable[..., Any], thread: list[int]) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        return (own if get_ident() in thread else theirs)(*args, **kwargs)

    return draw


def _is_everybodys(draw: Any) -> bool:
    """Whether this is a function of the module ``random``: a method of the one generator that it has."""
    return type(getattr(draw, "__self__", None)) is random.Random


class LazyModule:
    """A module that is slow to import, imported when an attribute of it is first used.

    ``draws``: whether its import draws from Python's ``random``.
    """

    def __init__(self, name: str, draws: bool = False) -> None:
        self._name, self._draws = name, draws
        self._module: Any = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            with importing, drawing_nothing() if self._draws else nullcontext():
                self._module = import_module(self._name)
        return getattr(self._module, attribute)


def _compiling() -> Any:
    """The lock under which numba compiles; None if numba is not imported, or not completely yet."""
    return getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)


fork.wait_for(lambda: importing, fork.IMPORTS)
fork.wait_for(_compiling, fork.COMPILING)
