"""Who measures, and what each process has measured: a row for each in a block of shared memory.

Nobody waits for anybody, and what a process measured that has ended is still known. The first word of the block says
whether its owner measures; a DataLoader's worker looks at it once a batch.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.system import clocks, fork, memory, ring, sums
from accel.system.clocks import STAGES, WIDTH, now
from accel.system.cores import delayed_ns
from accel.system.divided import divided
from accel.system.ring import Ring

HEADER = ["generation", "pid", "begun_ns", "until_ns", "cpu_ns", "delayed_ns", "threads", "images", "draws", "ns"]
HEADER += ["firsts", "first_cpu_ns", "before_cpu_ns"]  # first batches, CPU time to their end, and before the row was
GENERATION, PID, BEGUN, UNTIL, PROCESS_CPU, DELAYED, THREADS, IMAGES, DRAWS, SPAN, FIRSTS, FIRST_CPU, BEFORE = range(13)
TEXTS, TEXT = 24, np.dtype("S248")
"""Statements of the user's that a process was found in: how many, and how long their names may be."""
_WRITING, _UNADDED = 13, 14  # odd while the row is being written; how many entries are not in the sums yet
_MOST_UNADDED = 1024
_STAGES_BEGIN = 16
_UNADDED_BEGIN = _STAGES_BEGIN + 2 * len(STAGES) * WIDTH
_RINGS_BEGIN = _UNADDED_BEGIN + _MOST_UNADDED
_TEXTS_BEGIN = _RINGS_BEGIN + 2 * ring.WORDS
_ROWS, _ROW = 512, _TEXTS_BEGIN + TEXTS * (TEXT.itemsize // 8 + 1)
_CONTROL, _FOLDER = 128, 8
_MOST_EVENTS = 1 << 20  # of a process

_lock = fork.Lock()
_block: torch.Tensor | None = None
_words: npt.NDArray[np.int64]
control: Any = (0,)
"""The block's words, of which the first is the generation that is measured now; 0: none."""
_owner: int | None = None
_seen = 0  # the generation that this process counts for; 0: none
_row: npt.NDArray[np.int64] | None = None
_changes: list[Callable[[bool], object]] = []


def share(*, own: bool = False) -> torch.Tensor | None:
    """The shared block, made if there is none yet; None where none can be sent to a process that is started.

    ``own``: of this process and those that it starts, not of the one that started this one.
    """
    global _owner
    with _lock:
        if _block is None or (own and _owner != os.getpid()):
            size = 8 * (_CONTROL + _ROWS * _ROW)
            try:
                block = memory.shared((size,), torch.uint8, sparse=True)
            except RuntimeError:
                block = torch.from_numpy(np.frombuffer(mmap.mmap(-1, size), np.uint8))
            join(block)
            _owner = os.getpid()
        assert _block is not None
        return _block if _block.is_shared() else None


def join(block: torch.Tensor | None) -> None:
    """Write to the block that another process shared."""
    global _block, _words, control, _seen, _row
    if block is not None:
        with _lock:
            fork.leave_to_parent(_block)  # its end would close its descriptor, which may be another's by now
            _block, _words = block, block.numpy().view(np.int64)
            control = _words.data
            _seen, _row = 0, None


def on_change(function: Callable[[bool], object]) -> None:
    """Call ``function`` when measuring begins (True) and ends, in every process, and when ``ranges`` change."""
    _changes.append(function)


def look() -> bool:
    """Begin or end measuring if the process that owns the block has; whether that was so. Once a batch."""
    if control[0] == _seen:
        return False
    _turn(control[0])
    return True


def measuring() -> bool:
    """Whether this process measures."""
    return _seen != 0


def leave() -> None:
    """Have this process not be measured any more; for a child that does something else."""
    global _block, control
    _turn(0)
    _block, control = None, (0,)


def start(folder: str = "") -> None:
    """Have this process measure, and all that share its block; ``folder``: for files of events, if these are wanted.

    Raises:
        RuntimeError: it does already.
    """
    share(own=True)
    if _words[0]:
        raise RuntimeError("this process is being profiled already: accel.profile() cannot be nested")
    _words[_FOLDER:_CONTROL] = 0
    _words[_FOLDER:_CONTROL].view(np.uint8)[: len(os.fsencode(folder))] = list(os.fsencode(folder))
    _words[1] += 1
    _words[0] = _words[1]
    look()


def stop() -> list[Row]:
    """End it; what was measured by each process, this one first."""
    try:
        flush()
        return rows_of()
    finally:
        _words[0] = 0
        look()


def rows_of() -> list[Row]:
    """What was measured up to now, this process's first; none where nobody measures."""
    generation = 0 if _block is None else int(_words[0])
    if not generation:
        return []
    content = _words[_CONTROL:].reshape(_ROWS, _ROW)
    rows = [Row.of(_read(content[number])) for number in np.flatnonzero(content[:, GENERATION] == generation)]
    return sorted(rows, key=lambda row: row.header["pid"] != os.getpid())


def folder() -> str:
    """Where processes write events; "" if they do not."""
    return "" if _block is None else os.fsdecode(_words[_FOLDER:_CONTROL].tobytes().rstrip(b"\0"))


def _turn(generation: int) -> None:
    global _seen, _row
    with _lock:
        clocks.forget(events_wanted=bool(generation and folder()))
        _seen, _row = generation, None
        for change in _changes:
            change(bool(generation))


def show(make: Callable[[str], Any] | None) -> None:
    """Show stages in torch's profiler from now on, by ``make(name)``, a context; None: no longer."""
    with _lock:
        clocks.ranges = make
        for change in _changes:
            change(False)


def _in_child() -> None:
    global _row
    _row = None


fork.register(in_child=_in_child)


# -- rows ---------------------------------------------------------------------------------------------------


def _read(words: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A row's words when nobody was writing; at last as they are, for who did may have been killed."""
    for _ in range(100):
        found = words.copy()
        if not found[_WRITING] & 1 and found[_WRITING] == words[_WRITING]:
            break
        time.sleep(1e-4)
    return found


class Row(NamedTuple):
    """What one process measured: ``stages`` [stages, WIDTH]; (name, times) of statements."""

    header: dict[str, int]
    stages: npt.NDArray[np.int64]
    texts: list[tuple[str, int]]

    @classmethod
    def of(cls, words: npt.NDArray[np.int64]) -> Row:
        stages = words[_STAGES_BEGIN:_UNADDED_BEGIN].reshape(2, len(STAGES), WIDTH)
        sums.add_up(stages, words[_UNADDED_BEGIN:][: words[_UNADDED]])
        for its in words[_RINGS_BEGIN:_TEXTS_BEGIN].reshape(2, ring.WORDS):
            if its[ring.COUNT]:
                sums.add_up(stages, its[ring.WORDS - ring.MOST :][: its[ring.COUNT]])
            if its[ring.UNTIL]:  # its CPU time was looked at before, and goes on as it did
                since = words[PROCESS_CPU] - words[FIRST_CPU]
                words[PROCESS_CPU] += int(since * (its[ring.IMAGES] / max(words[IMAGES], 1) - 1))
                words[[UNTIL, SPAN, IMAGES]] = its[ring.UNTIL], its[ring.UNTIL] - words[BEGUN], its[ring.IMAGES]
        stages = divided(stages)
        texts = words[_TEXTS_BEGIN:]
        names, times = texts[TEXTS:].view(TEXT), texts[:TEXTS]
        named = [(names[n].decode("utf-8", "replace"), int(times[n])) for n in range(TEXTS) if times[n]]
        return cls(dict(zip(HEADER, words.tolist(), strict=False)), stages, named)


def take(ended: Callable[[int], bool]) -> list[Row]:
    """What processes measured that have ended, whose rows others may have from now on."""
    taken = [row for row in rows_of() if ended(row.header["pid"])]
    content = _words[_CONTROL:].reshape(_ROWS, _ROW)
    for row in taken:
        content[(content[:, PID] == row.header["pid"]), GENERATION] = 0
    return taken


def row() -> npt.NDArray[np.int64] | None:
    """This process's row; None where nobody measures, or there is none left."""
    global _row, _cpu_begun, _delayed_begun, _delayed_at
    if _row is None and _seen:
        pid = os.getpid()
        content = _words[_CONTROL:].reshape(_ROWS, _ROW)
        for number in range(pid, pid + _ROWS):
            found = content[number % _ROWS]
            if found[GENERATION] != _seen or found[PID] == pid:
                found[:] = 0
                found[PID], found[GENERATION], found[BEGUN] = pid, _seen, now()
                _row, _cpu_begun, _delayed_at = found, clocks.process_cpu_ns(), now()
                found[BEFORE], _delayed_begun = _cpu_begun, delayed_ns()
                rings[:] = map(Ring, found[_RINGS_BEGIN:_TEXTS_BEGIN].reshape(2, ring.WORDS))
                break
    return _row


rings: list[Ring] = []
"""Of this process's row: one for the thread that makes a worker's batches, one for that which sends them."""


_cpu_begun = _delayed_at = 0
_delayed_begun: int | None = None
_EVERY = 500_000_000  # ns


def flush(until: int = 0, *, first: bool = False, add_up: bool = True, own: Ring | None = None) -> None:
    """Write what the threads of this process have counted to its row.

    Args:
        until: it is measured up to then. first: with the end of one of a worker's first batches.
        add_up: whether to add it up first, which takes longer; what is not added up now, who reads the row will.
        own: what this thread writes to beside, which is added, too.
    """
    global _delayed_at, _delayed_begun
    found = row()
    if found is None:
        return
    with _flushing:
        if own is not None:
            clocks.clock().done += own.entries
        new = sums.gathered()
        found[_WRITING] += 1
        if own is not None:
            own.clear()
        if add_up or len(new) > _MOST_UNADDED:
            found[_STAGES_BEGIN:_UNADDED_BEGIN] = sums.total().reshape(-1)
            found[_UNADDED] = 0
        else:
            found[_UNADDED_BEGIN + found[_UNADDED] : _UNADDED_BEGIN + len(new)] = new[found[_UNADDED] :]
            found[_UNADDED] = len(new)
        if until or add_up:
            found[THREADS] = sums.working()
            found[PROCESS_CPU] = clocks.process_cpu_ns() - _cpu_begun
        if until:
            found[UNTIL] = until
            found[SPAN] = until - found[BEGUN]
        if first:
            found[FIRSTS], found[FIRST_CPU], _delayed_begun = found[FIRSTS] + 1, found[PROCESS_CPU], delayed_ns()
        found[_WRITING] += 1
    if clocks.events:
        written, clocks.events = clocks.events, []
        with suppress(OSError), open(os.path.join(folder(), str(os.getpid())), "ab") as file:
            if file.tell() < _MOST_EVENTS * 32:
                file.write(np.array(written, np.int64).tobytes())
    if _delayed_begun is not None and now() - _delayed_at > min(_EVERY, (_delayed_at - found[BEGUN]) // 4):
        found[DELAYED], _delayed_at = (delayed_ns() or 0) - _delayed_begun, now()


_flushing = fork.Lock()


def write_text(found: npt.NDArray[np.int64], number: int, text: str, times: int) -> None:
    """Write a statement, and how often a process was found at it, to its row."""
    place = found[_TEXTS_BEGIN:]
    place[TEXTS:].view(TEXT)[number], place[number] = text.encode()[: TEXT.itemsize], times
