"""``multiprocessing``: processes that start without what this one has imported take the switch along.

Those of "spawn" and "forkserver" get it with what they are prepared by; forked ones have it anyway. There it waits for
an import of accel or torchvision (``accel.launch.child``).
"""

from __future__ import annotations

import functools
import multiprocessing.spawn  # noqa: F401  whose function is replaced
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from accel import switch
from accel.codec import store
from accel.hooks.patch import Body, Function
from accel.launch import environment
from accel.options import Selection
from accel.system import counters, measuring, replaced


def _with_switch(original: Function, name: str) -> dict[str, Any]:
    """``multiprocessing.spawn.get_preparation_data``: all that a process reads before anything else."""
    data: dict[str, Any] = original(name)
    return {**data, "accel": _Carried(switch.current())} if carries() else data


def carries() -> bool:
    """Whether a process that is started from here gets the switch, and with it what these processes share."""
    told = environment.told() is not None  # which this process's own selection goes before
    return told or not switch.current().steps_aside


class _Carried:
    """A selection on its way into a process that is being started, with the counters where these can be shared."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def __reduce__(self) -> tuple[Any, ...]:
        shared = get_spawning_popen() is not None
        given = (counters.share(), measuring.share(), replaced.sent(), store.sent()) if shared else ()
        return exec, (program(self._selection, *given), {"__name__": "accel_started"})


def program(selection: Selection, *given: Any) -> str:
    """The text that a process is to run to have a selection as soon as there is a use for it; what else it is given."""
    enter = ForkingPickler.dumps(functools.partial(_enter, selection, *given))
    return f"{environment.CHILD}\nimport pickle\nSwitchOnImport(lambda: pickle.loads({bytes(enter)!r})()).install()\n"


def _enter(
    selection: Selection,
    counts: torch.Tensor | None = None,
    times: torch.Tensor | None = None,
    names: Any = None,
    entries: Any = None,
) -> None:
    if counts is not None:
        counters.join(counts)
    measuring.join(times)
    replaced.join(names)
    store.join(entries)
    switch.adopt(selection)


PATCHES = (Body("multiprocessing.spawn.get_preparation_data", _with_switch),)
