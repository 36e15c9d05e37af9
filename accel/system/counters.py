"""Counters of what was done and what fell back, over this process and the workers it started.

They are in one block of shared memory with a row per process, so that no process waits for another. Each count has its
name beside it, so that any process can read them.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accel.system import fork, log, memory

IMAGES, REPLACED, COMPUTED_EARLY = "images", "replaced", "computed early"
KERNELS, KEPT, IN_PLACE = "finished by torchvision", "kept", "sent in place"
INDEXES, INDEXED, MISFITS = "indexes", "indexed", "indexes dropped"
INDEX_HITS = "indexes read"
DRAWN_AGAIN = "drawn again"
RESULTS, RESULT_HITS, PLANES, PLANE_HITS = "results", "results used", "planes", "planes used"
_FALLBACK, _WAY, _ASKER = "fallback: ", "way: ", "asker: "
_CACHED = (INDEX_HITS, RESULTS, RESULT_HITS, PLANES, PLANE_HITS)
_ALONE = (IMAGES, REPLACED, COMPUTED_EARLY, KERNELS, KEPT, INDEXES, INDEXED, MISFITS, *_CACHED, IN_PLACE, DRAWN_AGAIN)
_OTHERS = {_FALLBACK: "any other reason", _WAY: "any other way", _ASKER: "anybody else"}  # when a row is full
_FIRST = (*_ALONE, *(kind + others for kind, others in _OTHERS.items()))
_ROWS, _SLOTS = 1024, 128
_COUNT, _NAME = np.dtype(np.int64), np.dtype("S120")

_lock = threading.RLock()
_block: torch.Tensor | None = None
_counts: npt.NDArray[np.int64]
_cells: memoryview  # the counts, flat: faster to change than by NumPy
_names: npt.NDArray[np.bytes_]
_places: dict[str, int] = {}  # this process's cells, by name
_logged: set[str] = set()
_shown: dict[str, Callable[[], Any]] = {}


def count(name: str, amount: int = 1) -> None:
    """Add to a counter of this process."""
    with _lock:
        place = _places.get(name)
        if place is None:
            share()
            row = os.getpid() % _ROWS
            place = _places[name] = row * _SLOTS + _slot(_names[row], name)
        _cells[place] += amount


def _slot(names: npt.NDArray[np.bytes_], name: str) -> int:
    """Find a name's slot in a row: fixed for the first few, the first free one for others, a shared one if all are
    taken."""
    encoded = name.encode()[: _NAME.itemsize]
    if name in _FIRST:
        slot = _FIRST.index(name)
    else:
        others = next(kind + others for kind, others in _OTHERS.items() if name.startswith(kind))
        free = (i for i in range(len(_FIRST), _SLOTS) if names[i] == encoded or not names[i])
        slot = next(free, _FIRST.index(others))
    names[slot] = encoded if slot >= len(_FIRST) else _FIRST[slot].encode()
    return slot


def fallback(reason: str) -> None:
    """Count a fallback; the first of each reason in a process is logged as a warning."""
    with _lock:
        count(_FALLBACK + reason)
        first = reason not in _logged
        _logged.add(reason)
    if first:
        log.note(log.WARNING, "accel fell back: %s", reason)


def way(name: str, images: int) -> None:
    """Count images by the way in which their transforms were recorded."""
    count(_WAY + name, images)


def early(asker: str | None, reason: str | None) -> None:
    """Count an image whose values were asked for one at a time, before a batch was made.

    ``asker``: the code that asked; None: the script as a whole. ``reason``: the fallback to count as well, if steps
    were recorded that now run apart from those that follow; None: no fallback.
    """
    count(COMPUTED_EARLY)
    if asker is not None:
        count(_ASKER + asker)
    if reason is not None:
        fallback(reason)


def show(name: str, value: Callable[[], Any]) -> None:
    """Add an entry to ``stats``, whose value is taken when ``stats`` is called."""
    _shown[name] = value


def stats() -> dict[str, Any]:
    """Count what accel has done since the process began, its DataLoader workers included.

    Returns:
        A dictionary of ints, but for the last four entries.

        - ``images``: lazy images whose pixels were computed;
        - ``replaced``: damaged files replaced by black (``on_error="replace"``);
        - ``computed early``: images whose pixels were asked for one at a time, before a batch was made;
          the same as ``realised early``, the older name, until 0.3;
        - ``finished by torchvision``: images whose last steps were torchvision's own kernels, run on accel's values;
        - ``kept``: files that were asked for again and therefore decoded whole, once, and kept;
        - ``indexes``: files that have a stream index (``cache="auto"``); ``indexed``: how often a file was decoded by
          one; ``indexes dropped``: how often an index was another file's, or damaged, and was made anew;
        - ``results``: results of steps that come each time, and ``planes``: half-decoded pictures, that were put into a
          cache of a given size (``cache="64GB"``); ``results used``, ``planes used``: how often one was taken from
          there; ``indexes read``: files whose index was read from there;
        - ``sent in place``: images whose files a device copied directly from the memory that a worker had put them in;
        - ``drawn again``: batches whose random numbers were drawn again, because another thread drew meanwhile;
        - ``in flight``: batches of this process submitted and not yet used; ``waiting``: batches that follow them;
        - ``replaced files``: the names of the first 100 files that were replaced, a list;
        - ``ways``: images of batches by how their transforms were recorded, a dictionary: ``drawn together``, or
          ``one by one`` and why; and images that came to a composition of transforms one by one: ``alone, compiled``,
          or ``alone, not compiled`` and why;
        - ``computed early by``: the images of ``computed early`` by the code that asked for their pixels, a dictionary;
        - ``fallbacks``: the counts of what was not done the fast way, by reason, a dictionary.
    """
    totals: dict[str, int] = {}
    with _lock:
        share()
        for row, slot in np.argwhere(_counts.copy()):  # other processes count meanwhile
            name = _names[row, slot].decode(errors="replace")
            totals[name] = totals.get(name, 0) + int(_counts[row, slot])
    result: dict[str, Any] = {name: totals.get(name, 0) for name in _ALONE}
    result["realised early"] = result[COMPUTED_EARLY]  # until 0.3
    result |= {name: value() for name, value in _shown.items()}
    log.flush()
    for entry, prefix in (("ways", _WAY), ("computed early by", _ASKER), ("fallbacks", _FALLBACK)):
        result[entry] = {name.removeprefix(prefix): n for name, n in totals.items() if name.startswith(prefix)}
    return result


def share() -> torch.Tensor | None:
    """The shared block, made on the first call, which must come before the processes that count into it start.

    None if it cannot be sent to a process: only forked ones count into it then.
    """
    refused: Exception | None = None
    with _lock:
        if _block is None:
            size = _ROWS * _SLOTS * (_COUNT.itemsize + _NAME.itemsize)
            try:
                join(memory.shared((size,), torch.uint8, sparse=True))
            except RuntimeError as error:
                join(torch.from_numpy(np.frombuffer(mmap.mmap(-1, size), np.uint8)))
                refused = error
        assert _block is not None
        block = _block if _block.is_shared() else None
    if refused is not None:
        log.note(log.WARNING, "what workers count that are not forked is not in accel.stats(): %s", refused)
    return block


def join(block: torch.Tensor) -> None:
    """Count into a block that another process shared."""
    global _block, _counts, _cells, _names
    with _lock:
        _block = block
        _places.clear()
        content, split = block.numpy(), _ROWS * _SLOTS * _COUNT.itemsize
        _counts = content[:split].view(_COUNT).reshape(_ROWS, _SLOTS)
        _cells = _counts.reshape(-1).data
        _names = content[split:].view(_NAME).reshape(_ROWS, _SLOTS)


fork.wait_for(lambda: _lock, fork.COUNTERS)
fork.register(in_child=_places.clear)
