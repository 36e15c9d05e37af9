"""Imports, and compilations, at first need: no process is forked in the midst of them.

A child of such a fork would have a module, or a function, that is half made, and a lock of Python's or numba's that
nobody in it will ever release.
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
"""A lock to hold while something is imported at first need."""


@contextmanager
def drawing_nothing() -> Iterator[None]:
    """Leave Python's random state as it was, where an import draws: rich's does."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


class LazyModule:
    """Stands for a module that is dear to import, until something of it is needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            with importing, drawing_nothing():
                self._module = import_module(self._name)
        return getattr(self._module, attribute)


def _compiling() -> Any:
    """The lock under which numba compiles, if numba is there: not yet, while somebody else imports it."""
    return getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)


fork.wait_for(lambda: importing, fork.IMPORTS)
fork.wait_for(_compiling, fork.COMPILING)
