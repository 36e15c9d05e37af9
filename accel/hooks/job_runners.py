"""Spark and Dask: workers that Java, or a scheduler elsewhere, has started cannot get the switch from here; the process
that gives them work says so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from typing import Any

from accel.hooks.patch import Function, Undo, body
from accel.processes import switch
from accel.processes.launch import environment
from accel.processes.launch.child import Watched
from accel.system import log


def _told(original: Function, *args: Any, whose: str, own: Callable[[Any], bool], **kwargs: Any) -> Any:
    """A method that gives work to workers; ``own``: whether these get the switch, or this is one, by its object."""
    if switch.active() is not None and environment.settings() is None and not own(args[0]):
        log.once(
            log.WARNING,
            f"{whose} workers run plain torchvision, unless the functions that they run call accel.set_image_backend "
            "themselves, or the script is started by python -m accel run",
        )
    return original(*args, **kwargs)


# by module: a method, whose workers, and ``own``
_METHODS: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "pyspark.serializers": ("CloudPickleSerializer.dumps", "Spark's", lambda _: "pyspark.worker" in sys.modules),
    "distributed.client": ("Client._graph_to_futures", "a cluster's (Dask)", lambda client: client.cluster is not None),
}


def watch() -> Undo:
    """Replace the methods, now or once somebody imports them; return a function that undoes it."""
    undo: list[Undo] = []

    def replace(module: str) -> None:
        name, whose, own = _METHODS[module]
        with suppress(AttributeError):  # another version
            method = attrgetter(name)(sys.modules[module])
            undo.append(body(method, lambda original: partial(_told, original, whose=whose, own=own)))

    def undo_all() -> None:
        _finder.call = None
        while undo:
            undo.pop()()

    for module in _METHODS.keys() & sys.modules.keys():
        replace(module)
    _finder.call = replace
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    return undo_all


class _Finder:
    """A module finder that finds nothing itself, but sees the import of these modules, and then calls ``call``.

    It stays among the finders: other threads that go through them would skip one if it were taken out.
    """

    call: Callable[[str], None] | None = None
    _asks = False

    def imported(self, name: str) -> None:
        if self.call is not None:
            self.call(name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _METHODS or self.call is None or self._asks:
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
