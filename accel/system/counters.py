"""Counters of what was done and what fell back, over this process and the workers it started.

They are in one block of shared memory with a row per process, so that no process waits for another. Each count has its
name beside it, so that any process can read them.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accel.system import fork, log, memory

IMAGES, REPLACED, COMPUTED_EARLY = "images", "replaced", "computed early"
KERNELS, KEPT, IN_PLACE, CONVERTED = "finished by torchvision", "kept", "sent in place", "converted"
INDEXES, INDEXED, MISFITS = "indexes", "indexed", "indexes dropped"
INDEX_HITS = "indexes read"
DRAWN_AGAIN, PREFETCH_RAISED = "drawn again", "prefetch raised"
RESULTS, RESULT_HITS, PLANES, PLANE_HITS = "results", "results used", "planes", "planes used"
_FALLBACK, _WAY, _ASKER, _THREADS, _POOL = "fallback: ", "way: ", "asker: ", "threads: ", "pool: "
_IMAGES = (IMAGES, REPLACED, COMPUTED_EARLY, KERNELS, KEPT, INDEXES, INDEXED, MISFITS)
_CACHED = (INDEX_HITS, RESULTS, RESULT_HITS, PLANES, PLANE_HITS)
_ALONE = (*_IMAGES, *_CACHED, IN_PLACE, DRAWN_AGAIN, CONVERTED, PREFETCH_RAISED)
_OTHERS = {_FALLBACK: "any other reason", _WAY: "any other way", _ASKER: "anybody else", _THREADS: "0", _POOL: "others"}
"""The name for all others of a kind, when a row is full."""
_FIRST = (*_ALONE, *(kind + others for kind, others in _OTHERS.items()))
_ROWS, _COLUMNS = 1024, 128
_CELLS = _ROWS, _COLUMNS
_BLOCK: Any = np.dtype([("owners", np.int64, _ROWS), ("counts", np.int64, _CELLS), ("names", "S120", _CELLS)])

_lock = threading.RLock()
_block: torch.Tensor | None = None
_owners: npt.NDArray[np.int64]  # the last process that counted in each row
_counts: npt.NDArray[np.int64]
_cells: memoryview  # the counts, flat: faster to change than by NumPy
_names: npt.NDArray[np.bytes_]
_places: dict[str, int] = {}  # this process's cells, by name
_new: deque[None] = deque(maxlen=1 << 16)  # an item for each fallback that ``new_fallbacks`` has not counted
_shown: dict[str, Callable[[], Any]] = {}
_uncounted = ContextVar("uncounted", default=False)


def count(name: str, amount: int = 1) -> None:
    """Add to a counter of this process."""
    if _uncounted.get() and not name.startswith(_FALLBACK):
        return
    with _lock:
        place = _places.get(name)
        if place is None:
            share()
            row = _row()
            place = _places[name] = row * _COLUMNS + _column(_names[row], name)
        _cells[place] += amount


def _row() -> int:
    """This process's row: the first one, from that of its number on, whose last process is itself or has ended."""
    own = os.getpid()
    for row in ((own + each) % _ROWS for each in range(_ROWS)):
        owner = int(_owners[row])
        if owner in (0, own) or not _lives(owner):
            _owners[row] = own
            return row
    return own % _ROWS


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # it may be another user's
    return True


def _column(names: npt.NDArray[np.bytes_], name: str) -> int:
    """Find a name's column in a row: fixed for the first few, the first free one for others, a shared one if all are
    taken."""
    encoded = name.encode()[: names.itemsize]
    if name in _FIRST:
        column = _FIRST.index(name)
    else:
        others = next(kind + others for kind, others in _OTHERS.items() if name.startswith(kind))
        free = (i for i in range(len(_FIRST), _COLUMNS) if names[i] == encoded or not names[i])
        column = next(free, _FIRST.index(others))
    names[column] = encoded if column >= len(_FIRST) else _FIRST[column].encode()
    return column


def fallback(reason: str, file: str | None = None) -> None:
    """Count a fallback; the first of each reason, in all processes of a run, is logged as a warning.

    ``file``: the name of the file that it is about, for the message.
    """
    count(_FALLBACK + reason)
    _new.append(None)
    if log.first(reason):
        log.note(log.WARNING, "accel fell back: %s%s", reason, "" if file is None else f" (the first one: {file})")


def new_fallbacks() -> int:
    """How often this process fell back since this was last called, or since it was forked."""
    new = len(_new)
    _new.clear()
    return new


@contextmanager
def uncounted() -> Iterator[None]:
    """Count nothing but fallbacks in the block, of this thread: its images are nobody's."""
    token = _uncounted.set(True)
    try:
        yield
    finally:
        _uncounted.reset(token)


def images(ways: Mapping[str, int]) -> None:
    """Count images that are computed, by the way in which their transforms were recorded."""
    for way, number in ways.items():
        count(IMAGES, number)
        count(_WAY + way, number)


def early(asker: str, reason: str | None) -> None:
    """Count an image whose values were asked for one at a time, before a batch was made.

    ``asker``: the code that asked. ``reason``: the fallback to count as well, if steps were recorded that now run apart
    from those that follow; None: no fallback.
    """
    if _uncounted.get():
        return
    count(COMPUTED_EARLY)
    count(_ASKER + asker)
    if reason is not None:
        fallback(reason)


def worker_threads(number: int) -> None:
    """Count a batch that a DataLoader worker computed on so many threads."""
    count(f"{_THREADS}{number}")


def thread_pool(name: str) -> None:
    """Count a DataLoader worker in which another library has this pool of threads."""
    count(_POOL + name)


def show(name: str, value: Callable[[], Any]) -> None:
    """Add an entry to ``stats``, whose value is taken when ``stats`` is called."""
    _shown[name] = value


def stats() -> dict[str, Any]:
    """Count what accel has done since the process began, its DataLoader workers included.

    Returns:
        A dictionary of ints, but for the last seven entries.

        - ``images``: lazy images whose pixels were computed; one that goes on after that counts again;
        - ``replaced``: damaged files replaced by black (``on_error="replace"``);
        - ``computed early``: images whose pixels were asked for one at a time, before a batch was made;
        - ``finished by torchvision``: images whose last steps were torchvision's own kernels, run on accel's values;
        - ``kept``: files that were asked for again and therefore decoded whole, once, and kept;
        - ``indexes``: files that have a stream index (``cache="auto"``); ``indexed``: how often a file was decoded by
          one; ``indexes dropped``: how often an index was another file's, or damaged, and was made anew;
        - ``results``: results of steps that come each time, and ``planes``: half-decoded pictures, that were put into a
          cache of a given size (``cache="64GB"``); ``results used``, ``planes used``: how often one was taken from
          there; ``indexes read``: files whose index was read from there;
        - ``sent in place``: images whose files a device copied directly from the memory that a worker had put them in;
        - ``converted``: images that a worker had finished in another dtype or memory order than was used, and a second
          pass on the device converted;
        - ``drawn again``: batches whose random numbers were drawn again, because another thread drew meanwhile;
        - ``prefetch raised``: how often the batches that a DataLoader's workers are ahead were doubled;
        - ``in flight``: batches of this process submitted and not yet used; ``waiting``: batches that follow them;
        - ``replaced files``: the names of the first 100 files that were replaced, a list;
        - ``ways``: the images of ``images`` by how their transforms were recorded, each once, a dictionary: as a batch,
          ``drawn together``; in a batch ``one by one``, and why; by a composition, ``alone, compiled``, or ``alone, not
          compiled`` and why; or ``alone, function by function``;
        - ``computed early by``: the images of ``computed early`` by the code that asked for their pixels, a dictionary;
        - ``worker threads``: the batches that DataLoader workers computed, by the number of threads that did, a
          dictionary (0: any other number);
        - ``thread pools``: pools of threads that other libraries had in DataLoader workers while these were profiled,
          by the library's name and their number, with the number of workers, a dictionary;
        - ``tuned``: how many batches are under way in each DataLoader, where that is not the script's number, by the
          dataset's class and length, a dictionary; kept for the script's next run (``ACCEL_TUNE_FILE``);
        - ``fallbacks``: the counts of what was not done the fast way, by reason, a dictionary.
    """
    totals: dict[str, int] = {}
    with _lock:
        share()
        for row, column in np.argwhere(_counts.copy()):  # other processes count meanwhile
            name = _names[row, column].decode(errors="replace")
            totals[name] = totals.get(name, 0) + int(_counts[row, column])
    result: dict[str, Any] = {name: totals.get(name, 0) for name in _ALONE}
    result |= {name: value() for name, value in _shown.items()}
    log.flush()
    named = ("ways", _WAY), ("computed early by", _ASKER), ("thread pools", _POOL), ("fallbacks", _FALLBACK)
    for entry, prefix in named:
        result[entry] = {name.removeprefix(prefix): n for name, n in totals.items() if name.startswith(prefix)}
    threads = {int(name.removeprefix(_THREADS)): n for name, n in totals.items() if name.startswith(_THREADS)}
    result["worker threads"] = dict(sorted(threads.items()))
    return result


def share() -> torch.Tensor | None:
    """The shared block, made on the first call, which must come before the processes that count into it start.

    None if it cannot be sent to a process: only forked ones count into it then.
    """
    refused: Exception | None = None
    with _lock:
        if _block is None:
            try:
                join(memory.shared((_BLOCK.itemsize,), torch.uint8, sparse=True))
            except RuntimeError as error:
                join(torch.from_numpy(np.frombuffer(mmap.mmap(-1, _BLOCK.itemsize), np.uint8)))
                refused = error
        assert _block is not None
        block = _block if _block.is_shared() else None
    if refused is not None:
        log.note(log.WARNING, "what workers count that are not forked is not in accel.stats(): %s", refused)
    return block


def join(block: torch.Tensor) -> None:
    """Count into a block that another process shared."""
    global _block, _owners, _counts, _cells, _names
    with _lock:
        _block = block
        _places.clear()
        _owners, _counts, _names = (block.numpy().view(_BLOCK)[name][0] for name in _BLOCK.names)
        _cells = _counts.reshape(-1).data


fork.wait_for(lambda: _lock, fork.COUNTERS)
fork.register(in_child=_places.clear)
fork.register(in_child=_new.clear)
