"""``multiprocessing``: processes that do not inherit this one's memory get its switch.

Those of "spawn" and "forkserver" get it with their preparation data; forked ones have it anyway; a worker of loky's,
joblib's processes, gets it with its process object, however late loky is imported here. It is thrown when accel or
torchvision is imported there (``accel.processes.launch.child``).
"""

from __future__ import annotations

import functools
import multiprocessing.spawn  # noqa: F401  its function is replaced
from multiprocessing import active_children
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from accel.codec import store
from accel.hooks.patch import ABSENT, Body, Function, Item
from accel.processes import switch
from accel.processes.launch import environment
from accel.recipes.options import Selection
from accel.system import counters, log, shared_list
from accel.system.private_names import private
from accel.system.timing import measuring

private("multiprocessing.process", "_current_process")


def _with_switch(original: Function, name: str) -> dict[str, Any]:
    """``multiprocessing.spawn.get_preparation_data``, with the switch: a new process reads it before anything else."""
    data: dict[str, Any] = original(name)
    return {**data, "accel": Carried(switch.current())} if carries() else data


def carries() -> bool:
    """Whether processes started from here get the switch, and with it the memory that these processes share."""
    launched = environment.settings() is not None  # this process's own selection takes precedence over it
    return launched or not switch.current().steps_aside


class Carried:
    """A selection to be sent to a process that is being started, with shared memory where that can be sent."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def __reduce__(self) -> tuple[Any, ...]:
        memory = () if get_spawning_popen() is None else shared_memory()
        return exec, (program(self._selection, *memory), {"__name__": "accel_started"})


def shared_memory() -> tuple[Any, ...]:
    """What this process's family shares: the arguments of ``enter`` behind the selection."""
    return counters.share(), measuring.share(), shared_list.sent(), store.sent()


def program(selection: Selection, *memory: Any) -> str:
    """The code that a process runs to get a selection once it is of use; ``memory``: more arguments of ``enter``."""
    code = bytes(ForkingPickler.dumps(functools.partial(enter, selection, *memory)))
    return f"{environment.CHILD}\nimport pickle\nSwitchOnImport(lambda: pickle.loads({code!r})()).install()\n"


def enter(
    selection: Selection,
    counts: torch.Tensor | None = None,
    times: torch.Tensor | None = None,
    texts: Any = None,
    entries: Any = None,
) -> None:
    """Join what another process of this one's family shares, and adopt a selection."""
    if counts is not None:
        counters.join(counts)
    measuring.join(times)
    shared_list.join(texts)
    store.join(entries)
    switch.adopt(selection)


class _ToLoky:
    """An entry of multiprocessing's settings of a process, which all processes that it starts get a copy of; pickled
    for a worker of loky's, it carries the switch in force then."""

    def __reduce__(self) -> tuple[Any, ...]:
        if getattr(get_spawning_popen(), "method", "") == "loky" and carries():
            return Carried(switch.current()).__reduce__()
        return type(None), ()  # for others nothing, for which nothing is imported


def _entry(original: Any) -> Any:
    children = active_children() if original is ABSENT else []
    if any(type(each).__name__ in _LOKY or each.name.startswith("Dask Worker") for each in children):
        log.once(
            log.WARNING,
            "loky (joblib) or Dask had started workers before the image backend was set: these run plain torchvision",
        )
    return _ToLoky()


_LOKY = ("LokyProcess", "LokyInitMainProcess")
PATCHES = (
    Body("multiprocessing.spawn.get_preparation_data", _with_switch),
    Item("multiprocessing.process._current_process._config", _entry, keys=("accel",)),
)
