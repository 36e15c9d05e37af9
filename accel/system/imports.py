"""What is imported, and compiled, when it is first needed: no process is forked in the midst of it.

A child of such a fork would have a module, or a function, that is half made, and a lock of Python's or numba's that
nobody in it will ever release.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from accel.system import fork, log

importing = fork.Lock()
"""To be held by whoever imports something late."""


class LazyModule:
    """Stands for a module that is dear to import, until something of it is needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            with importing, _compiled():
                self._module = import_module(self._name)
        return getattr(self._module, attribute)


@contextmanager
def _compiled() -> Iterator[None]:
    """What is imported inside is compiled by numba even where NUMBA_DISABLE_JIT is set.

    That is for stepping through functions in Python; accel's are no Python: they would fail, or take hours. A user's
    own functions stay as they asked.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0"):
        yield
        return
    enabled = _enabled()
    enabled.enter()
    try:
        yield
    finally:
        enabled.leave()


@cache
def _enabled() -> Any:
    """Has numba compile between ``enter`` and ``leave``, and while it compiles: it looks for that all the time."""
    from numba import config
    from numba.core import event

    class Enabled(event.Listener):  # type: ignore[misc]
        depth = 0

        def enter(self) -> None:
            self.depth += 1
            config.DISABLE_JIT = 0

        def leave(self) -> None:
            self.depth -= 1
            config.DISABLE_JIT = int(self.depth == 0)

        def on_start(self, event: object) -> None:
            self.enter()

        def on_end(self, event: object) -> None:
            self.leave()

    log.note(log.WARNING, "NUMBA_DISABLE_JIT is set: accel's own functions are compiled all the same")
    enabled = Enabled()
    event.register("numba:compile", enabled)
    return enabled


class _Compiling:
    """The lock under which numba compiles, if numba is there."""

    def __init__(self) -> None:
        self._held: Any = None

    def acquire(self) -> None:
        module = sys.modules.get("numba.core.compiler_lock")
        lock = getattr(module, "global_compiler_lock", None)  # not yet, while somebody else imports numba
        if lock is not None:
            lock.acquire()
        self._held = lock

    def release(self) -> None:
        lock, self._held = self._held, None
        if lock is not None:
            lock.release()


fork.wait_for(importing, fork.IMPORTS)
fork.wait_for(_Compiling(), fork.COMPILING)
