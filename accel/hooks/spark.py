"""Spark: its workers are started by Java and cannot get the switch from here; the driver says so when it gives them
work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

from accel.hooks.patch import Function, Undo, body
from accel.processes import switch
from accel.processes.launch import environment
from accel.processes.launch.child import Watched
from accel.system import log

_MODULE = "pyspark.serializers"


def _dumps(original: Function, *args: Any, **kwargs: Any) -> Any:
    """``CloudPickleSerializer.dumps``, which pickles the functions that workers run."""
    if switch.active() is not None and environment.settings() is None:
        log.once(
            log.WARNING,
            "Spark's workers run plain torchvision, unless the functions that they run call accel.set_image_backend "
            "themselves, or the script is started by python -m accel run",
        )
    return original(*args, **kwargs)


def watch() -> Undo:
    """Replace Spark's function, now or once somebody imports it; return a function that undoes it."""
    undo: list[Undo] = []

    def replace() -> None:
        with suppress(AttributeError):  # another version of Spark
            dumps = sys.modules[_MODULE].CloudPickleSerializer.dumps
            undo.append(body(dumps, lambda original: partial(_dumps, original)))

    def undo_all() -> None:
        _finder.call = None
        while undo:
            undo.pop()()

    if _MODULE in sys.modules:
        replace()
    else:
        _finder.call = replace
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    return undo_all


class _Finder:
    """A module finder that finds nothing itself, but sees the import of Spark's module, and then calls ``call``.

    It stays among the finders: other threads that go through them would skip one if it were taken out.
    """

    call: Callable[[], None] | None = None
    _asks = False

    def imported(self, name: str) -> None:
        if self.call is not None:
            self.call()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _MODULE or self.call is None or self._asks:
            return None
        self._asks = True
        try:
            spec = find_spec(name)
        finally:
            self._asks = False
        if spec is not None and spec.loader is not None:
            spec.loader = Watched(spec.loader, self)  # type: ignore[assignment]
        return spec


_finder = _Finder()
