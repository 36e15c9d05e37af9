"""A process of ``accel run --profile``: from its first DataLoader on it measures, and leaves that in a file.

The file is there when the process ends, also by an error or Ctrl-C, and is written anew from time to time: of a process
that is killed, or calls ``os._exit``, the last seconds are lost.
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
from accel.profiling import collect, folder, loading, progress, trial
from accel.profiling.measured import Measured
from accel.profiling.watched import dataset_name
from accel.system import log, stderr

_MOST = 0.005
"""Share of the time that may go into looking at what was measured while it is."""
_LEAST_S = {"line": 0.5, "file": 10.0}
"""Seconds between two looks, at least."""


class _Now:
    """What this process does."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.pid = os.getpid()
        self.trace = bool(told.get("trace"))
        self.file = Path(told["folder"]) / f"{self.pid}-{time.time_ns()}.json" if told.get("folder") else None
        self.line = _line_of(told)
        self.tries = self.file is not None and told.get("trial", True)
        self.started = self.looked = False
        self.next = {"line": 0.0, "file": time.monotonic() + _LEAST_S["file"]}

    def start(self) -> None:
        try:
            collect.start(trace=self.trace, within=self.file and self.file.parent)
        except (RuntimeError, OSError):  # the script's own accel.profile() does, or the command has ended before
            return
        self.started = True
        loading.listeners[:] = [self.look]  # not those of the process that forked this one
        # when the script ends no process can be started any more
        loading.ends[:] = [partial(collect.try_another, say=_say)] if self.tries else []
        Finalize(None, self.end, exitpriority=1000)

    def look(self) -> None:
        """Show and write what was measured, if it is time."""
        begun = time.monotonic()
        due = [name for name, when in self.next.items() if begun >= when and getattr(self, name) is not None]
        if not due:
            return
        try:
            measured = collect.so_far()
            if self.line is not None and "line" in due:
                self.line.update(measured)
            if self.file is not None and "file" in due:
                folder.leave(_of_rank(measured), self.file)
        except Exception as error:  # the script goes on
            loading.listeners.clear()
            log.note(log.WARNING, "what is measured is neither shown nor kept before the end: %r", error)
        now = time.monotonic()
        pause = (now - begun) / _MOST if self.looked else 0.0  # the first look imports what it draws with
        self.looked = True
        for name in due:
            self.next[name] = now + max(_LEAST_S[name], pause)

    def end(self) -> None:
        if self.line is not None:
            self.line.close()
        if not self.tries:  # nobody asks what another backend would bring
            loading.watched.samples.clear()
        with suppress(FileNotFoundError):  # the command has ended before: nobody waits for it
            measured = collect.stop(_say)
            if self.file is not None and measured.loaders:
                folder.leave(_of_rank(measured), self.file)
        _stay_interrupted()


def _stay_interrupted() -> None:
    """Have Python end by SIGINT where Ctrl-C has ended the script, as it would: it forgets that with the next text that
    is executed, as some modules do when they are imported."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def _say(text: str) -> None:
    if not _rank():
        stderr.say(("\n" if stderr.is_terminal() else "") + text)  # a bar of the script's may stand there


def _of_rank(measured: Measured) -> Measured:
    for process in measured.processes:
        process.rank = _rank()
    return measured


def _rank() -> int | None:
    """This process's, as torchrun, Slurm or Lightning tell it."""
    told = (os.environ.get(name, "") for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"))
    return next((int(rank) for rank in told if rank.isdecimal()), None)


_now: _Now | None = None
_line: progress.Line | None = None


def begin(told: dict[str, Any]) -> None:
    """Measure from the first loader on, as told.

    Args:
        told: "folder", to leave it in, or None; "trace", "progress" and "trial", whether these are wanted; "loader":
            None, or arguments of the script's loaders to put in the place of its own, and of which ("like").
    """

    def iterate(original: Function, self: Any) -> Any:
        return DataLoader.__iter__(self) if _starts(told) else original(self)  # by the clocks that are there now

    if parent_process() is None:
        _line_of(told)
    Body("torch.utils.data.DataLoader.__iter__", iterate).put(DataLoader.__iter__)
    if told.get("loader"):
        Body("torch.utils.data.DataLoader.__init__", partial(_construct, **told["loader"])).put(DataLoader.__init__)


def _line_of(told: dict[str, Any]) -> progress.Line | None:
    """This process's live line, if it has one; from now on what the script prints appears above it."""
    global _line
    if told.get("progress") and not _rank() and (_line is None or _line.pid != os.getpid()):
        _line = progress.Line()
    return _line


def _starts(told: dict[str, Any]) -> bool:
    """Begin to measure if this process has not; a forked one begins anew, a DataLoader's worker is its parent's."""
    global _now
    if trial.runs or get_worker_info() is not None or (_now is not None and _now.pid == os.getpid() and _now.started):
        return False
    _now = _Now(told)
    _now.start()
    return _now.started


def _construct(
    original: Function, loader: Any, *args: Any, change: dict[str, Any], like: dict[str, Any], **kwargs: Any
) -> None:
    """``DataLoader.__init__``, with other arguments for a loader that is like the one that is held back."""
    given = signature(original).bind(loader, *args, **kwargs)
    given.apply_defaults()
    its = given.arguments
    found = {"dataset": dataset_name(its["dataset"]), "num_workers": its["num_workers"]}
    if its["batch_sampler"] is None:
        found["batch_size"] = its["batch_size"]
    if all(like[name] == value for name, value in found.items()):
        its.update(change)
    original(*given.args, **given.kwargs)
