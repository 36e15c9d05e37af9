"""Processes that begin without what this one has imported take the switch along.

Those of multiprocessing ("spawn", "forkserver") get it with what it prepares them by; forked ones have it anyway. Ray's
workers get it by the hook that Ray has for them (``for_ray``). It waits there, in ``started``, for torchvision.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch

from accel import switch
from accel.hooks import patch
from accel.options import Selection
from accel.system import counters, log, replaced
from accel.system.private_names import private

spawn = private("multiprocessing.spawn", "get_preparation_data")

_STARTED = Path(__file__).with_name("multiprocessing_child.py").read_text()
_RAY, _RAYS_OWN = "RAY_RUNTIME_ENV_HOOK", "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
_HOOK = "worker_process_setup_hook"


def entries() -> list[Callable[[], patch.Undo]]:
    """What to replace, and put back."""
    made = [lambda: patch.attribute(spawn, "get_preparation_data", _with_switch(spawn.get_preparation_data))]
    if _RAY not in os.environ and importlib.util.find_spec("ray") is not None:
        made.append(lambda: patch.item(os.environ, _RAY, f"{__name__}.{for_ray.__name__}"))
        ray = sys.modules.get("ray")
        if ray is not None and ray.is_initialized():
            log.note(
                log.WARNING, "Ray was initialised before the image backend was set: its workers have torchvision's"
            )
    return made


def _with_switch(original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """``multiprocessing.spawn.get_preparation_data``: all that a process reads before it begins."""

    @functools.wraps(original)
    def get_preparation_data(name: str) -> dict[str, Any]:
        selection = switch.current()
        data = original(name)
        return data if selection.steps_aside else {**data, "accel": _Carried(selection)}

    return get_preparation_data


class _Carried:
    """What goes into a process that is being started: a selection, and where these can be shared, the counters."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def __reduce__(self) -> tuple[Any, ...]:
        shared = get_spawning_popen() is not None
        counts, names = (counters.share(), replaced.sent()) if shared else (None, None)
        enter = ForkingPickler.dumps(functools.partial(_enter, self._selection, counts, names))
        return exec, (_to_be_run(bytes(enter)), {"__name__": "accel_started"})


def _to_be_run(enter: bytes) -> str:
    return f"{_STARTED}\nWaiting({enter!r}).begin()\n"


def _enter(selection: Selection, counts: torch.Tensor | None, names: Any) -> None:
    if counts is not None:
        counters.join(counts)
    replaced.join(names)
    switch.adopt(selection)


def for_ray(runtime_env: dict[str, Any] | None) -> dict[str, Any] | None:
    """What ``ray.init`` goes on with in place of the ``runtime_env`` that it was given."""
    selection = switch.current()
    if selection.steps_aside:
        return runtime_env
    given = runtime_env or {}
    if given.get(_HOOK) is not None or _RAYS_OWN in (given.get("env_vars") or {}):
        log.note(log.WARNING, "Ray's workers run torchvision, unless the %s given sets the image backend", _HOOK)
        return runtime_env
    text = _to_be_run(pickle.dumps(functools.partial(_enter, selection, None, None)))

    def take_accel_along() -> None:  # Ray sends it by value, so that a worker without images imports nothing
        exec(text, {"__name__": "accel_started"})

    return {**given, _HOOK: take_accel_along}
