"""Who measures, and what each process has measured: a row for each in a block of shared memory.

Nobody waits for anybody, and what a process measured that has ended is still known. The first word of the block says
whether its owner measures; a DataLoader's worker looks at it once a batch.
"""

from __future__ import annotations

import mmap
import os
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.system import clocks, fork, memory, ring, sums
from accel.system import row_words as at
from accel.system.clocks import STAGES, WIDTH, now
from accel.system.cores import delayed_ns
from accel.system.divided import divided
from accel.system.ring import Ring

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
    _words[at.FOLDER : at.CONTROL] = 0
    _words[at.FOLDER : at.CONTROL].view(np.uint8)[: len(os.fsencode(folder))] = list(os.fsencode(folder))
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
    content = _words[at.CONTROL :].reshape(at.ROWS, at.ROW)
    rows = [Row.of(_read(content[number])) for number in np.flatnonzero(content[:, at.GENERATION] == generation)]
    return sorted(rows, key=lambda row: row.header["pid"] != os.getpid())


def folder() -> str:
    """Where processes write events; "" if they do not."""
    return "" if _block is None else os.fsdecode(_words[at.FOLDER : at.CONTROL].tobytes().rstrip(b"\0"))


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
        if not found[at.WRITING] & 1 and found[at.WRITING] == words[at.WRITING]:
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
        stages = words[at.SUMS_BEGIN : at.UNADDED_BEGIN].reshape(2, len(STAGES), WIDTH)
        sums.add_up(stages, words[at.UNADDED_BEGIN :][: words[at.UNADDED]])
        images = int(words[at.IMAGES])
        for its in words[at.RINGS_BEGIN : at.TEXTS_BEGIN].reshape(2, ring.WORDS):
            if its[ring.COUNT]:
                sums.add_up(stages, its[ring.WORDS - ring.MOST :][: its[ring.COUNT]])
            if its[ring.UNTIL]:
                words[[at.UNTIL, at.SPAN]] = its[ring.UNTIL], its[ring.UNTIL] - words[at.BEGUN]
                images = int(its[ring.IMAGES])
        _go_on(words, images)
        stages = divided(stages)
        texts = words[at.TEXTS_BEGIN :]
        names, times = texts[at.TEXTS :].view(at.TEXT), texts[: at.TEXTS]
        named = [(names[n].decode("utf-8", "replace"), int(times[n])) for n in range(at.TEXTS) if times[n]]
        return cls(dict(zip(at.HEADER, words.tolist(), strict=False)), stages, named)


def _go_on(words: npt.NDArray[np.int64], images: int) -> None:
    """What was looked at before so many images were made goes on as it did; not what the first batches took."""
    first, seen, delayed = words[[at.FIRST_IMAGES, at.IMAGES, at.DELAYED_IMAGES]].tolist()
    for spent, of_first in (at.PROCESS_CPU, at.FIRST_CPU), (at.SYSTEM, at.FIRST_SYSTEM):
        words[spent] += int((words[spent] - words[of_first]) * (images - seen) / max(seen - first, 1))
    words[at.DELAYED] += int(words[at.DELAYED] * (images - delayed) / (delayed - first)) if delayed > first else 0
    words[at.IMAGES] = images


def take(ended: Callable[[int], bool]) -> list[Row]:
    """What processes measured that have ended, whose rows others may have from now on."""
    taken = [row for row in rows_of() if ended(row.header["pid"])]
    content = _words[at.CONTROL :].reshape(at.ROWS, at.ROW)
    for row in taken:
        content[(content[:, at.PID] == row.header["pid"]), at.GENERATION] = 0
    return taken


def row() -> npt.NDArray[np.int64] | None:
    """This process's row; None where nobody measures, or there is none left."""
    global _row, _cpu_begun, _system_begun, _delayed_begun, _delayed_at
    if _row is None and _seen:
        pid = os.getpid()
        content = _words[at.CONTROL :].reshape(at.ROWS, at.ROW)
        for number in range(pid, pid + at.ROWS):
            found = content[number % at.ROWS]
            if found[at.GENERATION] != _seen or found[at.PID] == pid:
                found[:] = 0
                found[at.PID], found[at.GENERATION], found[at.BEGUN] = pid, _seen, now()
                _row, _cpu_begun, _delayed_at = found, clocks.process_cpu_ns(), now()
                found[at.BEFORE], _delayed_begun, _system_begun = _cpu_begun, delayed_ns(), clocks.system_ns()
                rings[:] = map(Ring, found[at.RINGS_BEGIN : at.TEXTS_BEGIN].reshape(2, ring.WORDS))
                break
    return _row


rings: list[Ring] = []
"""Of this process's row: one for the thread that makes a worker's batches, one for that which sends them."""


_cpu_begun = _system_begun = _delayed_at = 0
_delayed_begun: int | None = None
_EVERY = 500_000_000  # ns


def flush(until: int = 0, *, first: bool = False, own: Ring | None = None) -> None:
    """Write what the threads of this process have counted to its row; who reads it adds up what is not added up yet.

    Args:
        until: it is measured up to then. first: with the end of one of a worker's first batches.
        own: what this thread writes to beside, which is added, too.
    """
    global _delayed_at, _delayed_begun
    found = row()
    if found is None:
        return
    words = found.data.cast("B").cast("q")  # one of them is written in less than half of numpy's time
    with _flushing:
        if own is not None:
            clocks.clock().done += own.entries
        new, there = sums.gathered(), words[at.UNADDED]
        words[at.WRITING] += 1
        if own is not None:
            own.clear()
        if len(new) > at.MOST_UNADDED:
            found[at.SUMS_BEGIN : at.UNADDED_BEGIN] = sums.total().reshape(-1)
            words[at.UNADDED] = 0
        else:
            words[at.UNADDED_BEGIN + there : at.UNADDED_BEGIN + len(new)] = memoryview(array("q", new[there:]))
            sums.write_cpu(found[at.SUMS_BEGIN : at.UNADDED_BEGIN])
            words[at.UNADDED] = len(new)
        words[at.THREADS] = sums.working()
        words[at.PROCESS_CPU] = clocks.process_cpu_ns() - _cpu_begun
        words[at.SYSTEM] = clocks.system_ns() - _system_begun
        if until:
            words[at.UNTIL] = until
            words[at.SPAN] = until - words[at.BEGUN]
        if first:
            words[at.FIRSTS] += 1
            found[[at.FIRST_CPU, at.FIRST_SYSTEM, at.FIRST_IMAGES]] = found[[at.PROCESS_CPU, at.SYSTEM, at.IMAGES]]
            _delayed_begun, _delayed_at = delayed_ns(), now()
        words[at.WRITING] += 1
    if clocks.events:
        written, clocks.events = clocks.events, []
        with suppress(OSError), open(os.path.join(folder(), str(os.getpid())), "ab") as file:
            if file.tell() < _MOST_EVENTS * 32:
                file.write(np.array(written, np.int64).tobytes())
    late = own is None or now() - _delayed_at > min(_EVERY, _delayed_at - words[at.BEGUN])
    if late and _delayed_begun is not None:
        found[at.DELAYED], _delayed_at = (delayed_ns() or 0) - _delayed_begun, now()
        found[at.DELAYED_IMAGES] = found[at.IMAGES]


_flushing = fork.Lock()


def write_text(found: npt.NDArray[np.int64], number: int, text: str, times: int) -> None:
    """Write a statement, and how often a process was found at it, to its row."""
    place = found[at.TEXTS_BEGIN :]
    place[at.TEXTS :].view(at.TEXT)[number], place[number] = text.encode()[: at.TEXT.itemsize], times
