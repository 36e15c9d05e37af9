"""loky, joblib's processes: a worker gets the switch with its process object, however late loky is imported here."""

from __future__ import annotations

from multiprocessing import active_children
from multiprocessing.context import get_spawning_popen
from typing import Any

from accel.hooks.multiprocessing import Carried, carries
from accel.hooks.patch import ABSENT, Item
from accel.processes import switch
from accel.system import log
from accel.system.private_names import private

private("multiprocessing.process", "_current_process")


class _ToLoky:
    """An entry of multiprocessing's settings of a process, which all processes that it starts get a copy of; pickled
    for a worker of loky's, it carries the switch in force then."""

    def __reduce__(self) -> tuple[Any, ...]:
        if getattr(get_spawning_popen(), "method", "") == "loky" and carries():
            return Carried(switch.current()).__reduce__()
        return type(None), ()  # for others nothing, for which nothing is imported


def _entry(original: Any) -> Any:
    if original is ABSENT and any(type(each).__name__ in _PROCESSES for each in active_children()):
        log.once(
            log.WARNING,
            "loky (joblib) had started workers before the image backend was set: these run plain torchvision",
        )
    return _ToLoky()


_PROCESSES = ("LokyProcess", "LokyInitMainProcess")
PATCHES = (Item("multiprocessing.process._current_process._config", _entry, keys=("accel",)),)
