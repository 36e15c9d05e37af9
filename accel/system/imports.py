"""Imports and compilations at first use: forks wait until they are over.

A child forked in between would have a half made module or function, and a lock of Python's or numba's that is never
released in it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from accel.system import fork

importing = fork.Lock()
"""The lock to hold while something is imported at first use."""


@contextmanager
def drawing_nothing() -> Iterator[None]:
    """Restore Python's random state after the block: some imports draw from it, rich's does."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


class LazyModule:
    """A module that is slow to import, imported when an attribute of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            with importing, drawing_nothing():
                self._module = import_module(self._name)
        return getattr(self._module, attribute)


def _compiling() -> Any:
    """The lock under which numba compiles; None if numba is not imported, or not completely yet."""
    return getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)


fork.wait_for(lambda: importing, fork.IMPORTS)
fork.wait_for(_compiling, fork.COMPILING)
