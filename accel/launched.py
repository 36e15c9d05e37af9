"""What a process does that was started under ``python -m accel run``, as soon as it has imported accel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

from accel import switch
from accel.errors import BackendUnavailable
from accel.hooks import multiprocessing
from accel.launch import environment
from accel.system import imports


def enter(chosen: Callable[[], object] | None) -> None:
    """Throw the switch that the environment tells, or what the process that started this one has chosen.

    Raises:
        SystemExit: there is no such backend or option, or the backend cannot run here: the script was to run under it.
    """
    told = environment.told()
    for row in multiprocessing.PATCHES:  # to stay: also that accel steps aside is to be told, for the environment
        row.put(row.find())  # that a server has, which was started earlier, says something else
    if chosen is not None:
        chosen()
    elif told is not None:
        try:
            switch.adopt(switch.select(told["backend"], told["options"]))
        except (BackendUnavailable, TypeError, ValueError) as error:
            print(f"accel run: {error}", file=sys.stderr)
            raise SystemExit(2) from None
    if told is not None and told["profile"] is not None:
        with imports.drawing_nothing():
            launched = import_module("accel.profiling.launched")
        launched.begin(told["profile"])
