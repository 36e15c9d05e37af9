"""Functions of libraries that accel does not need: replaced now, or once somebody imports their module."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from typing import Any

from accel.hooks.patch import Function, Undo, body
from accel.processes.launch.child import Watched

Replace = Callable[[Any], Undo]
"""Replaces functions of a module, and returns a function that undoes it."""


def calling(name: str, replacement: Function, **more: Any) -> Replace:
    """Have a module's function, by its dotted name, run ``replacement(original, ...)`` with ``more`` arguments."""
    return lambda module: body(attrgetter(name)(module), lambda original: partial(replacement, original, **more))


def watch(modules: Mapping[str, Replace]) -> Undo:
    """Replace functions of modules, found by name, now or once somebody imports them; return what undoes it.

    A version that lacks a function that ``modules`` replaces stays as it is.
    """
    undo: list[Undo] = []

    def replace(name: str) -> None:
        with suppress(AttributeError):
            undo.append(modules[name](sys.modules[name]))

    def undo_all() -> None:
        _finder.call = None
        while undo:
            undo.pop()()

    for name in modules.keys() & sys.modules.keys():
        replace(name)
    _finder.names, _finder.call = frozenset(modules), replace
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    return undo_all


class _Finder:
    """A module finder that finds nothing itself, but sees the import of these modules, and then calls ``call``.

    It stays among the finders: other threads that go through them would skip one if it were taken out.
    """

    names: frozenset[str] = frozenset()
    call: Callable[[str], None] | None = None

    def __init__(self) -> None:
        self._asking = threading.local()  # whether this thread asks the other finders

    def imported(self, name: str) -> None:
        if self.call is not None:
            self.call(name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.names or self.call is None or getattr(self._asking, "now", False):
            return None
        self._asking.now = True
        try:
            spec = find_spec(name)
        finally:
            self._asking.now = False
        if spec is not None and spec.loader is not None:
            spec.loader = Watched(spec.loader, self)  # type: ignore[assignment]
        return spec


_finder = _Finder()
