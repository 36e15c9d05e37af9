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
import numpy.typing as npt
import torch

from accel.system import fork, memory
from accel.system.cores import delayed_ns
from accel.system.timing import clocks
from accel.system.timing import row_words as at
from accel.system.timing.clocks import STAGES, WIDTH, now

_MOST_EVENTS = 1 << 20  # of a process

_lock = fork.Lock()
_block: torch.Tensor | None = None
_words: npt.NDArray[np.int64]
control: Any = (0,)
"""The block's words; the first is the generation that is being measured, 0: none."""
_owner: int | None = None
_seen = 0  # the generation that this process counts for; 0: none
_row: npt.NDArray[np.int64] | None = None
changed: Callable[[bool], object] = bool
"""Called as measuring begins (True) or ends (False) in this process, and as ``clocks.ranges`` changes (False)."""


def share(*, own: bool = False) -> torch.Tensor | None:
    """The shared block, made if there is none yet; None if it cannot be sent to a process that is being started.

    ``own``: a block of this process and those that it starts, not that of the process that started this one.
    """
    global _owner
    with _lock:
        if _block is None or (own and _owner != os.getpid()):
            size = 8 * (at.CONTROL + at.ROWS * at.ROW)
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
    global _block, _words, control, _seen, _row
    if block is not None:
        with _lock:
            fork.leave_to_parent(_block)  # freeing it would close its descriptor, which may be another file's by now
            _block, _words = block, block.numpy().view(np.int64)
            control = _words.data
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
    if _words[0]:
        raise RuntimeError("this process is being profiled already: accel.profile() cannot be nested")
    _words[at.FOLDER : at.CONTROL] = 0
    _words[at.FOLDER : at.CONTROL].view(np.uint8)[: len(os.fsencode(folder))] = list(os.fsencode(folder))
    _words[1] += 1
    _words[0] = _words[1]
    look()


def stop() -> list[ProcessRow]:
    """End measuring and return the rows of all processes, this one's first."""
    try:
        flush()
        return rows_of()
    finally:
        _words[0] = 0
        look()


def rows_of() -> list[ProcessRow]:
    """The rows of all processes up to now, this one's first; an empty list if nothing is being measured."""
    generation = 0 if _block is None else int(_words[0])
    if not generation:
        return []
    content = _words[at.CONTROL :].reshape(at.ROWS, at.ROW)
    rows = [ProcessRow.of(_read(content[number])) for number in np.flatnonzero(content[:, at.GENERATION] == generation)]
    return sorted(rows, key=lambda row: row.header["pid"] != os.getpid())


def folder() -> str:
    """The folder that processes write events to; "" if they write none."""
    return "" if _block is None else os.fsdecode(_words[at.FOLDER : at.CONTROL].tobytes().rstrip(b"\0"))


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


def _read(words: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A copy of a row taken while nobody wrote to it; after 100 tries as it is, as its process may have been killed."""
    for _ in range(100):
        found = words.copy()
        if not found[at.WRITING] & 1 and found[at.WRITING] == words[at.WRITING]:
            break
        time.sleep(1e-4)
    return found


class ProcessRow(NamedTuple):
    """One process's ``row_words.HEADER``, ``stages`` [stages, WIDTH] and (statement, times found at it) pairs."""

    header: dict[str, int]
    stages: npt.NDArray[np.int64]
    texts: list[tuple[str, int]]

    @classmethod
    def of(cls, words: npt.NDArray[np.int64]) -> ProcessRow:
        stages = words[at.SUMS_BEGIN : at.RINGS_BEGIN].reshape(2, len(STAGES), WIDTH)
        images = int(words[at.IMAGES])
        for ring in words[at.RINGS_BEGIN : at.TEXTS_BEGIN].reshape(2, at.RING):
            clocks.add_up(stages, ring[at.RING_BEGIN :][: ring[at.RING_COUNT]])
            if until := ring[at.RING_UNTIL]:
                words[[at.UNTIL, at.SPAN]] = until, until - words[at.START]
                images = int(ring[at.RING_IMAGES])
        _go_on(words, images)
        stages = clocks.divided(stages)
        texts = words[at.TEXTS_BEGIN :]
        names, times = texts[at.TEXTS :].view(at.TEXT), texts[: at.TEXTS]
        named = [(names[n].decode("utf-8", "replace"), int(times[n])) for n in range(at.TEXTS) if times[n]]
        return cls(dict(zip(at.HEADER, words.tolist(), strict=False)), stages, named)


def _go_on(words: npt.NDArray[np.int64], images: int) -> None:
    """Extrapolate CPU times and waiting to ``images``, as the last look at them was earlier; without first batches."""
    first, seen, delayed = words[[at.FIRST_IMAGES, at.IMAGES, at.DELAYED_IMAGES]].tolist()
    for spent, of_first in (at.PROCESS_CPU, at.FIRST_CPU), (at.SYSTEM, at.FIRST_SYSTEM):
        words[spent] += int((words[spent] - words[of_first]) * (images - seen) / max(seen - first, 1))
    words[at.DELAYED] += int(words[at.DELAYED] * (images - delayed) / (delayed - first)) if delayed > first else 0
    words[at.IMAGES] = images


def take(ended: Callable[[int], bool]) -> list[ProcessRow]:
    """Return the rows of processes for which ``ended(pid)``, and free them for others."""
    ended_rows = [row for row in rows_of() if ended(row.header["pid"])]
    content = _words[at.CONTROL :].reshape(at.ROWS, at.ROW)
    for row in ended_rows:
        content[(content[:, at.PID] == row.header["pid"]), at.GENERATION] = 0
    return ended_rows


def row() -> npt.NDArray[np.int64] | None:
    """This process's row; None if nothing is being measured, or no row is left."""
    global _row, _cpu_start, _system_start, _delayed_start, _delayed_at
    if _row is None and _seen:
        pid = os.getpid()
        content = _words[at.CONTROL :].reshape(at.ROWS, at.ROW)
        for number in range(pid, pid + at.ROWS):
            found = content[number % at.ROWS]
            if found[at.GENERATION] != _seen or found[at.PID] == pid:
                found[:] = 0
                found[at.PID], found[at.GENERATION], found[at.START] = pid, _seen, now()
                _row, _cpu_start, _delayed_at = found, clocks.process_cpu_ns(), now()
                found[at.BEFORE], _delayed_start, _system_start = _cpu_start, delayed_ns(), clocks.system_ns()
                rings[:] = map(at.Ring, found[at.RINGS_BEGIN : at.TEXTS_BEGIN].reshape(2, at.RING))
                break
    return _row


rings: list[at.Ring] = []
"""The rings of this process's row: one for the thread that makes a worker's batches, one for that which sends them."""


_cpu_start = _system_start = _delayed_at = 0
_delayed_start: int | None = None
_EVERY = 500_000_000  # ns


def flush(until: int = 0, *, first: bool = False, own: at.Ring | None = None) -> None:
    """Write what the threads of this process have counted to its row; readers add the rings.

    Args:
        until: the time up to which it is measured; 0: unchanged. first: one of a worker's first batches has ended.
        own: the ring that this thread writes to, whose entries are added, too.
    """
    global _delayed_at, _delayed_start
    found = row()
    if found is None:
        return
    words = found.data.cast("B").cast("q")  # writing one word takes less than half of NumPy's time
    with _flushing:
        if own is not None:
            clocks.clock().done += own.entries
        sums = clocks.total().reshape(-1)
        words[at.WRITING] += 1
        if own is not None:
            own.clear()
        found[at.SUMS_BEGIN : at.RINGS_BEGIN] = sums
        words[at.THREADS] = clocks.working()
        words[at.PROCESS_CPU] = clocks.process_cpu_ns() - _cpu_start
        words[at.SYSTEM] = clocks.system_ns() - _system_start
        if until:
            words[at.UNTIL] = until
            words[at.SPAN] = until - words[at.START]
        if first:
            words[at.FIRSTS] += 1
            found[[at.FIRST_CPU, at.FIRST_SYSTEM, at.FIRST_IMAGES]] = found[[at.PROCESS_CPU, at.SYSTEM, at.IMAGES]]
            _delayed_start, _delayed_at = delayed_ns(), now()
        words[at.WRITING] += 1
    if clocks.events:
        written, clocks.events = clocks.events, []
        with suppress(OSError), open(os.path.join(folder(), str(os.getpid())), "ab") as file:
            if file.tell() < _MOST_EVENTS * 32:
                file.write(np.array(written, np.int64).tobytes())
    late = own is None or now() - _delayed_at > min(_EVERY, _delayed_at - words[at.START])
    if late and _delayed_start is not None:
        found[at.DELAYED], _delayed_at = (delayed_ns() or 0) - _delayed_start, now()
        found[at.DELAYED_IMAGES] = found[at.IMAGES]


_flushing = fork.Lock()


def write_text(found: npt.NDArray[np.int64], number: int, text: str, times: int) -> None:
    """Write a statement, and how often the process was found at it, to its row."""
    place = found[at.TEXTS_BEGIN :]
    place[at.TEXTS :].view(at.TEXT)[number], place[number] = text.encode()[: at.TEXT.itemsize], times
