"""Counters of what was done and what fell back, over this process and the workers it started.

They live in one block of shared memory, a row a process, so that nobody waits for anybody. A forked child
takes the next row; a spawned one is handed the block and a row (``handover``).
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accel import fork

_log = logging.getLogger("accel")

IMAGES, REPLACED, REALISED_EARLY = "images", "replaced", "realised early"
_FALLBACK = "fallback: "
_ROWS, _COUNTERS = 1024, 48
_NAME = 96  # bytes kept of a reason's name

Handover = tuple[torch.Tensor, int]
_ROW = np.dtype([("count", np.int64, _COUNTERS), ("name", f"S{_NAME}", _COUNTERS)])

_lock = threading.RLock()
_memory: torch.Tensor | None = None
_rows: npt.NDArray[np.void] = np.zeros(0, _ROW)
_row = 0
_next_row = 1
_logged: set[str] = set()


def count(name: str, amount: int = 1) -> None:
    """Add to a counter of this process."""
    with _lock:
        share()
        names, counts = _rows["name"][_row], _rows["count"][_row]
        encoded = name.encode()[:_NAME]
        for slot in range(_COUNTERS):
            if names[slot] == encoded or not names[slot]:
                break
        names[slot] = encoded
        counts[slot] += amount


def fallback(reason: str) -> None:
    """Count a fallback; the first of each reason in a process is logged as a warning."""
    with _lock:
        count(_FALLBACK + reason)
        if reason not in _logged:
            _logged.add(reason)
            _log.warning("accel fell back: %s", reason)


def early(reason: str, loses: bool) -> None:
    """Count an image whose values were asked for one at a time, before a batch was made.

    ``loses``: steps were recorded that now run apart from what follows; that is a fallback as well.
    """
    count(REALISED_EARLY)
    if loses:
        fallback(reason)


def stats() -> dict[str, Any]:
    """What accel has done since the process began, its DataLoader workers included.

    Returns:
        ``images``: late images whose pixels were computed; ``replaced``: broken ones replaced by black
        (``on_error="replace"``); ``realised early``: images whose pixels were asked for one at a time, before
        a batch was made; ``fallbacks``: how often what fell back, by reason.
    """
    totals: dict[str, int] = {}
    with _lock:
        for row, slot in np.argwhere(_rows["count"]):
            name = _rows["name"][row, slot].decode(errors="replace")
            totals[name] = totals.get(name, 0) + int(_rows["count"][row, slot])
    result: dict[str, Any] = {name: totals.get(name, 0) for name in (IMAGES, REPLACED, REALISED_EARLY)}
    result["fallbacks"] = {name.removeprefix(_FALLBACK): n for name, n in totals.items() if name.startswith(_FALLBACK)}
    return result


def share() -> None:
    """Make the shared block, if there is none yet: before the processes that are to count into it start."""
    with _lock:
        if _memory is None:
            _use(torch.zeros(_ROWS * _ROW.itemsize, dtype=torch.uint8).share_memory_())


def handover() -> Handover:
    """What a process started without fork needs to count into the same block."""
    with _lock:
        share()
        assert _memory is not None
        return _memory, _take_row()


def accept(given: Handover) -> None:
    """Count into the block of the process that gave this."""
    global _row
    with _lock:
        _use(given[0])
        _row = given[1]


def _use(memory: torch.Tensor) -> None:
    global _memory, _rows
    _memory = memory
    _rows = memory.numpy().view(_ROW)


def _take_row() -> int:
    """The next row for another process; reused after a thousand of them, which by then have ended."""
    global _next_row
    row, _next_row = _next_row, _next_row % (_ROWS - 1) + 1
    return row


_forked_row = 0


def _before_fork() -> None:
    global _forked_row
    _lock.acquire()
    _forked_row = _take_row()


def _in_parent() -> None:
    _lock.release()


def _in_child() -> None:
    global _lock, _row
    _lock = threading.RLock()
    _row = _forked_row


fork.register(before=_before_fork, in_parent=_in_parent, in_child=_in_child)
