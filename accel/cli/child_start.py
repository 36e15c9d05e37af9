"""The first thing that a process started under ``python -m accel run`` does once it has imported accel."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from multiprocessing import parent_process

from accel.errors import BackendUnavailable, Result
from accel.hooks import multiprocessing
from accel.lazy import explanation
from accel.processes import switch
from accel.processes.launch import environment
from accel.system import imports, stderr


def enter(chosen: Callable[[], object] | None) -> None:
    """Select the backend that the starting process had chosen (``chosen``), or else the one that the environment names.

    Raises:
        SystemExit: there is no such backend or option, or it cannot run here, or the environment is not accel's.
    """
    settings = _or_end(environment.settings)
    if environment.is_first() and parent_process() is None:
        atexit.register(_say, os.getpid())
    for row in multiprocessing.PATCHES:  # never undone: children must also be told that accel steps aside, since the
        row.put(row.find())  # environment of a fork server that was started earlier may say otherwise
    if chosen is not None:
        chosen()
    elif settings is not None:
        switch.adopt(_or_end(partial(switch.select, settings["backend"], settings["options"])))
    if settings is not None and settings["profile"] is not None:
        with imports.drawing_nothing():
            run_process = import_module("accel.profiling.run_process")
        run_process.begin(settings["profile"])


def _or_end(function: Callable[[], Result]) -> Result:
    try:
        return function()
    except (BackendUnavailable, TypeError, ValueError) as error:
        print(f"accel run: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _say(process: int) -> None:
    """Write how accel did, at the end of this process, and not of one that it forked."""
    if os.getpid() == process:
        stderr.say(f"accel run: {explanation.summary_in_a_line()}")
