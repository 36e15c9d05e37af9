"""Ray: its workers get the switch by Ray's setup hook; it is thrown when they import accel or torchvision."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from accel.hooks.multiprocessing import program
from accel.hooks.patch import ABSENT, Item
from accel.processes import switch
from accel.system import log

_RAYS_OWN = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
_HOOK = "worker_process_setup_hook"


def _hook(original: Any) -> Any:
    """The dotted name of ``runtime_env``; the original value if there is one, or Ray is not installed."""
    if original is not ABSENT or importlib.util.find_spec("ray") is None:
        return original
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        log.note(log.WARNING, "Ray was initialised before the image backend was set: its workers have torchvision's")
    return f"{__name__}.{runtime_env.__name__}"


def runtime_env(original: dict[str, Any] | None) -> dict[str, Any] | None:
    """The ``runtime_env`` that ``ray.init`` uses instead of the given one."""
    selection = switch.current()
    if selection.steps_aside:
        return original
    env = original or {}
    if env.get(_HOOK) is not None or _RAYS_OWN in (env.get("env_vars") or {}):
        log.note(log.WARNING, "Ray's workers run torchvision, unless the %s given sets the image backend", _HOOK)
        return original
    text = program(selection)

    def take_accel_along() -> None:  # Ray sends it by value, so a worker without images does not import accel
        exec(text, {"__name__": "accel_started"})

    return {**env, _HOOK: take_accel_along}


PATCHES = (Item("os.environ", _hook, keys=("RAY_RUNTIME_ENV_HOOK",)),)
