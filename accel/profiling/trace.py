"""A trace in Chrome's format, which ui.perfetto.dev opens: workers and ranks as processes, stages as slices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from accel.profiling.measured import Measured, Process

_LAST = 2**31 - 1
"""A thread number that no system uses; perfetto takes a negative one for the process's own."""


def events(measured: Measured) -> list[dict[str, Any]]:
    """The trace's events, in microseconds from the first one.

    Without ``Measured.events`` they are only the main processes' batches: wait, copy and step.
    """
    slices = [*measured.events, *_batches(measured)]
    began = min((start for _, _, _, start, _ in slices), default=0)
    known = {process.pid: process for process in measured.processes}
    named: list[dict[str, Any]] = []
    for pid in sorted({pid for pid, *_ in slices}, key=lambda pid: _order(known.get(pid), pid)):
        named.append(_metadata("process_name", pid, name=_name(known.get(pid), pid)))
        named.append(_metadata("process_sort_index", pid, sort_index=len(named) // 2))
    named += [
        {**_metadata("thread_name", pid, name="batches"), "tid": tid}
        for pid, tid in sorted({(pid, tid) for pid, tid, *_ in slices if tid == _LAST - pid})
    ]
    return named + [
        {
            "ph": "X",
            "cat": "accel",
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": (start - began) / 1e3,
            "dur": max(ns, 0) / 1e3,
        }
        for pid, tid, name, start, ns in sorted(slices, key=lambda each: (each[3], -each[4]))
    ]


def write(measured: Measured, file: str | Path) -> None:
    """Write the trace to a file, whose folder is made if there is none."""
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"traceEvents": events(measured), "displayTimeUnit": "ms", "otherData": {"backend": measured.backend}}
    path.write_text(json.dumps(content), encoding="utf-8")


def _batches(measured: Measured) -> list[tuple[int, int, str, int, int]]:
    """Slices for the batches, on a track of their own if a process has finer events."""
    only = next((process.pid for process in measured.processes if process.role == "main"), 0)
    finer = {pid for pid, *_ in measured.events}
    found = []
    for batch in measured.batches:
        pid = batch.pid or only
        track = _LAST - pid if pid in finer else pid
        start = batch.requested_ns
        for name, ns in (("wait", batch.wait_ns), ("copy", batch.copy_ns), ("step", batch.step_ns)):
            if ns:
                title = name if name != "wait" else f"wait for batch {batch.number} of epoch {batch.epoch}"
                found.append((pid, track, title, start, ns))
                start += ns
    return found


def _metadata(kind: str, pid: int, **arguments: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "args": arguments}


def _order(process: Process | None, pid: int) -> tuple[int, bool, int, int]:
    if process is None:
        return 1 << 30, True, 0, pid
    return process.rank or 0, process.role != "main", process.worker or 0, pid


def _name(process: Process | None, pid: int) -> str:
    if process is None:
        return f"process {pid}"
    rank = "" if process.rank is None else f"rank {process.rank}: "
    if process.role == "main":
        return f"{rank}main process"
    return f"{rank}worker {process.worker}" + ("" if process.loader is None else f" of loader {process.loader}")
