"""Measuring over several processes: each writes its counts to a row of its own in a block of shared memory.

No process waits for another, and the rows of processes that have ended stay. The first word of the block says whether
its owner measures; a DataLoader worker looks at it once a batch.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch

from accel.system import fork, memory
from accel.system.cores import delayed_ns
from accel.system.timing import clocks
from accel.system.timing.clocks import STAGES, WIDTH, now

HEADER = ("generation", "writing", "pid", "start_ns", "threads", "draws")
"""What a row begins with; ``writing`` is odd while its process writes to it."""
SUMS: tuple[str, ...] = ("ns", "cpu_ns", "system_ns", "delayed_ns", "images", "before_cpu_ns")
SUMS += ("firsts", "first_cpu_ns", "first_system_ns")
"""What follows, of which processes that replace each other have the sum. ``before_cpu_ns``: CPU time before the row was
made. ``firsts``: a worker's first batches, which ``first_`` is of; ``delayed_ns`` is without them."""
TEXTS = 24
"""The most statements of the user's at which a process is found."""

_ROW: Any = np.dtype(
    [
        *((name, np.int64) for name in (*HEADER, *SUMS)),
        *(("stages", np.int64, (len(STAGES), WIDTH)), ("times", np.int64, TEXTS), ("texts", "S248", TEXTS)),
    ]
)
_CONTROL: Any = np.dtype([("generation", np.int64), ("generations", np.int64), ("folder", "S1008")])
_ROWS = 512
_MOST_EVENTS = 1 << 20  # of a process

_lock = fork.Lock()
_block: torch.Tensor | None = None
_head: Any
_rows: Any
control: Any = (0,)
"""The block's words; the first is the generation that is being measured, 0: none."""
_owner: int | None = None
_seen = 0  # the generation that this process counts for; 0: none
_row: Any = None
changed: Callable[[bool], object] = bool
"""Called as measuring begins (True) or ends (False) in this process, and as ``clocks.ranges`` changes (False)."""


def share(*, own: bool = False) -> torch.Tensor | None:
    """The shared block, made if there is none yet; None if it cannot be sent to a process that is being started.

    ``own``: a block of this process and those that it starts, not that of the process that started this one.
    """
    global _owner
    with _lock:
        if _block is None or (own and _owner != os.getpid()):
            size = _CONTROL.itemsize + _ROWS * _ROW.itemsize
            try:
                block = memory.shared((size,), torch.uint8, sparse=True)
            except RuntimeError:
                block = torch.from_numpy(np.frombuffer(mmap.mmap(-1, size), np.uint8))
            join(block)
            _owner = os.getpid()
        assert _block is not None
        return _block if _block.is_shared() else None


def join(block: torch.Tensor | None) -> None:
    """Measure into the block that another process shared; None: it has none."""
    global _block, _head, _rows, control, _seen, _row
    if block is not None:
        with _lock:
            fork.leave_to_parent(_block)  # freeing it would close its descriptor, which may be another file's by now
            _block = block
            head, rows = np.split(block.numpy(), [_CONTROL.itemsize])
            _head, _rows, control = head.view(_CONTROL)[0], rows.view(_ROW), head.view(np.int64).data
            _seen, _row = 0, None


def look() -> bool:
    """Begin or end measuring if the owner of the block has; return whether anything changed. Called once a batch."""
    if control[0] == _seen:
        return False
    _turn(control[0])
    return True


def measuring() -> bool:
    """Whether this process measures."""
    return _seen != 0


def leave() -> None:
    """Stop measuring this process: for a child that does something else."""
    global _block, control
    _turn(0)
    _block, control = None, (0,)


def start(folder: str = "") -> None:
    """Begin measuring in this process and all that share its block; ``folder``: for files of events; "": no events.

    Raises:
        RuntimeError: it has begun already.
    """
    share(own=True)
    if _head["generation"]:
        raise RuntimeError("this process is being profiled already: accel.profile() cannot be nested")
    _head["folder"] = os.fsencode(folder)
    _head["generations"] += 1
    _head["generation"] = _head["generations"]
    look()


def stop() -> list[ProcessRow]:
    """End measuring and return the rows of all processes, this one's first."""
    try:
        flush()
        return rows_of()
    finally:
        _head["generation"] = 0
        look()


def rows_of() -> list[ProcessRow]:
    """The rows of all processes up to now, this one's first; an empty list if nothing is being measured."""
    generation = 0 if _block is None else int(_head["generation"])
    found = np.flatnonzero(_rows["generation"] == generation) if generation else ()
    return sorted((_read(_rows[number]) for number in found), key=lambda row: row.header["pid"] != os.getpid())


def folder() -> str:
    """The folder that processes write events to; "" if they write none."""
    return "" if _block is None else os.fsdecode(_head["folder"])


def _turn(generation: int) -> None:
    global _seen, _row
    with _lock:
        clocks.forget(events_wanted=bool(generation and folder()))
        _seen, _row = generation, None
        changed(bool(generation))


def show(make: Callable[[str], Any] | None) -> None:
    """Show stages in torch's profiler from now on, by the context ``make(name)``; None: stop showing them."""
    with _lock:
        clocks.ranges = make
        changed(False)


def _in_child() -> None:
    global _row
    _row = None


fork.register(in_child=_in_child)


# -- rows ---------------------------------------------------------------------------------------------------


class ProcessRow(NamedTuple):
    """One process's ``HEADER`` and ``SUMS``, ``stages`` [stages, WIDTH], and (statement, times found at it) pairs."""

    header: dict[str, int]
    stages: Any
    texts: list[tuple[str, int]]


def _read(row: Any) -> ProcessRow:
    """A row as it is while nobody writes to it; after 100 tries as it is, as its process may have been killed."""
    for _ in range(100):
        found = row.copy()
        if not found["writing"] & 1 and found["writing"] == row["writing"]:
            break
        time.sleep(1e-4)
    texts = [text.decode("utf-8", "replace") for text in found["texts"]]
    named = [(text, int(times)) for text, times in zip(texts, found["times"], strict=True) if times]
    return ProcessRow({name: int(found[name]) for name in (*HEADER, *SUMS)}, found["stages"], named)


def take(ended: Callable[[int], bool]) -> list[ProcessRow]:
    """Return the rows of processes for which ``ended(pid)``, and free them for others."""
    ended_rows = [row for row in rows_of() if ended(row.header["pid"])]
    for row in ended_rows:
        _rows["generation"][_rows["pid"] == row.header["pid"]] = 0
    return ended_rows


def row() -> Any:
    """This process's row, whose fields can be set by name; None if nothing is being measured, or no row is left."""
    global _row, _system_start, _delayed_start
    if _row is None and _seen:
        pid = os.getpid()
        for number in range(pid, pid + _ROWS):
            found = _rows[number % _ROWS]
            if found["generation"] != _seen or found["pid"] == pid:
                _rows[number % _ROWS] = np.zeros((), _ROW)
                found["pid"], found["generation"], found["start_ns"] = pid, _seen, now()
                found["before_cpu_ns"] = clocks.process_cpu_ns()
                _row, _system_start, _delayed_start = found, clocks.system_ns(), delayed_ns()
                break
    return _row


flushed = _system_start = 0  # when ``flush`` was last called, in nanoseconds
_delayed_start: int | None = None
_flushing = fork.Lock()


def flush(until: int = 0, images: int = 0, *, first: bool = False) -> None:
    """Write what the threads of this process have counted to its row.

    Args:
        until, images: the time up to which it is measured, and the images made until then; 0: unchanged.
        first: one of a worker's first batches has ended.
    """
    global flushed, _delayed_start
    found, flushed = row(), now()
    if found is None:
        return
    with _flushing:
        found["writing"] += 1
        found["stages"] = clocks.total()
        found["threads"] = len(clocks.working)
        found["cpu_ns"] = clocks.process_cpu_ns() - found["before_cpu_ns"]
        found["system_ns"] = clocks.system_ns() - _system_start
        if until:
            found["ns"], found["images"] = until - found["start_ns"], images
        if first:
            found["firsts"] += 1
            found["first_cpu_ns"], found["first_system_ns"] = found["cpu_ns"], found["system_ns"]
            _delayed_start = delayed_ns()
        elif _delayed_start is not None:
            found["delayed_ns"] = (delayed_ns() or 0) - _delayed_start
        found["writing"] += 1
    if clocks.events:
        written, clocks.events = clocks.events, []
        with suppress(OSError), open(os.path.join(folder(), str(os.getpid())), "ab") as file:
            if file.tell() < _MOST_EVENTS * 32:
                file.write(np.array(written, np.int64).tobytes())
