"""A process of ``accel run --profile``: it measures from its first DataLoader on, and writes that to a file.

The file is written when the process ends, also by an error or Ctrl-C, and from time to time before: if the process is
killed, or calls ``os._exit``, only the last seconds are lost.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from functools import partial
from inspect import signature
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, get_worker_info

from accel.hooks.patch import Body, Function
from accel.profiling import collect, loading, progress, trial
from accel.profiling.loader_records import dataset_name
from accel.profiling.measured import Measured
from accel.system import log, stderr

_MOST = 0.005
"""The most of the time to spend on showing and writing measurements meanwhile."""
_LEAST_S = {"line": 0.5, "file": 10.0}
"""The least seconds between two updates of the live line, and of the file."""


class _Profile:
    """The profiling of this process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.pid = os.getpid()
        self.trace = bool(settings.get("trace"))
        self.file = Path(settings["folder"]) / f"{self.pid}-{time.time_ns()}.pickle" if settings.get("folder") else None
        self.line = _line_of(settings)
        self.tries = self.file is not None and settings.get("trial", True)
        self.started = self.looked = False
        self.next = {"line": 0.0, "file": time.monotonic() + _LEAST_S["file"]}

    def start(self) -> None:
        try:
            collect.start(trace=self.trace, within=self.file and self.file.parent)
        except (RuntimeError, OSError):  # the script's own accel.profile() measures, or the command has ended already
            return
        self.started = True
        loading.listeners[:] = [self.look]  # in place of the parent process's
        # not later: when the script ends no process can be started any more
        loading.ends[:] = [partial(collect.try_another, say=_say)] if self.tries else []
        Finalize(None, self.end, exitpriority=1000)

    def look(self) -> None:
        """Show and write the measurements, if it is time."""
        start = time.monotonic()
        due = [name for name, when in self.next.items() if start >= when and getattr(self, name) is not None]
        if not due:
            return
        try:
            measured = collect.so_far()
            if self.line is not None and "line" in due:
                self.line.update(measured)
            if self.file is not None and "file" in due:
                _of_rank(measured).save(self.file)
        except Exception as error:  # the script goes on
            loading.listeners.clear()
            log.note(log.WARNING, "what is measured is neither shown nor kept before the end: %r", error)
        now = time.monotonic()
        pause = (now - start) / _MOST if self.looked else 0.0  # the first time includes imports
        self.looked = True
        for name in due:
            self.next[name] = now + max(_LEAST_S[name], pause)

    def end(self) -> None:
        if self.line is not None:
            self.line.close()
        if not self.tries:  # so that no other backend is tried
            loading.records.samples.clear()
        with suppress(FileNotFoundError):  # the command has ended already
            measured = collect.stop(_say)
            if self.file is not None and measured.loaders:
                _of_rank(measured).save(self.file)
        _stay_interrupted()


def _stay_interrupted() -> None:
    """Let Python still end by SIGINT if Ctrl-C has ended the script: it forgets that when the next code string is
    executed, as importing some modules does."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def _say(text: str) -> None:
    if not _rank():
        stderr.say(("\n" if stderr.is_terminal() else "") + text)  # the script's progress bar may stand there


def _of_rank(measured: Measured) -> Measured:
    for process in measured.processes:
        process.rank = _rank()
    return measured


def _rank() -> int | None:
    """This process's rank, from torchrun, Slurm or Lightning; None if it has none."""
    texts = (os.environ.get(name, "") for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"))
    return next((int(rank) for rank in texts if rank.isdecimal()), None)


_profile: _Profile | None = None
_line: progress.Line | None = None


def begin(settings: dict[str, Any]) -> None:
    """Prepare this process to measure from its first loader on.

    Args:
        settings: "folder": the folder to write to, or None; "trace", "progress", "trial": whether these are wanted;
            "loader": None, or {"change": arguments for the script's loaders, "like": which loaders}.
    """

    def iterate(original: Function, self: Any) -> Any:
        return DataLoader.__iter__(self) if _starts(settings) else original(self)  # with the clocks now in place

    if parent_process() is None:
        _line_of(settings)
    Body("torch.utils.data.DataLoader.__iter__", iterate).put(DataLoader.__iter__)
    if settings.get("loader"):
        Body("torch.utils.data.DataLoader.__init__", partial(_construct, **settings["loader"])).put(DataLoader.__init__)


def _line_of(settings: dict[str, Any]) -> progress.Line | None:
    """This process's live line, made if it should have one; the script's output then appears above it."""
    global _line
    if settings.get("progress") and not _rank() and (_line is None or _line.pid != os.getpid()):
        _line = progress.Line()
    return _line


def _starts(settings: dict[str, Any]) -> bool:
    """Start measuring unless this process does already; True if started. A forked child starts anew, a worker never."""
    global _profile
    if (
        trial.runs
        or get_worker_info() is not None
        or (_profile is not None and _profile.pid == os.getpid() and _profile.started)
    ):
        return False
    _profile = _Profile(settings)
    _profile.start()
    return _profile.started


def _construct(
    original: Function, loader: Any, *args: Any, change: dict[str, Any], like: dict[str, Any], **kwargs: Any
) -> None:
    """``DataLoader.__init__``, with changed arguments for a loader that matches ``like``."""
    given = signature(original).bind(loader, *args, **kwargs)
    given.apply_defaults()
    its = given.arguments
    found = {"dataset": dataset_name(its["dataset"]), "num_workers": its["num_workers"]}
    if its["batch_sampler"] is None:
        found["batch_size"] = its["batch_size"]
    if all(like[name] == value for name, value in found.items()):
        its.update(change)
    original(*given.args, **given.kwargs)
