"""Stream indexes of files: made while files are decoded, and kept for the next epoch.

An index changes no pixel: the decoder uses one only if it fits all bytes of the file. So the key that it is found by
(``accel.system.memory.key_of``) need not be beyond doubt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from accel.codec import store, store_fields
from accel.codec.decode import decode
from accel.codec.engines import Box, Data, Pixels
from accel.codec.header import Header, Raw
from accel.codec.jpeg import Index
from accel.system import counters, fork
from accel.system.memory import Key

FULL = "the memory for stream indexes is full"


class Durable(Protocol):
    """The place of one file's index in a cache that outlives the run (``accel.runtime.memo.indexes``)."""

    def read(self, room: Callable[[int], Any]) -> bool:
        """Copy the index to ``room(size)``, memory of so many bytes; False if it is not there."""

    def lacks(self, index: npt.NDArray[np.uint8]) -> bool:
        """Whether the cache knows so much less of the file that this index must be put in."""

    def put(self, index: bytes) -> None:
        """Put the index into the cache."""


class _Thread(threading.local):
    """The index that a thread decodes with."""

    def __init__(self) -> None:
        self.index = Index()


_thread = _Thread()
_full = False  # stays True: the store never frees anything
_AT_ONCE = 64  # indexes
_waiting: dict[Key, tuple[bytes, Durable | None]] = {}
_happened: list[str] = []  # names of counters to be increased
fork.register(in_child=_waiting.clear)  # the parent keeps them
fork.register(in_child=_happened.clear)


def decoded(
    data: Data,
    header: Header | Raw,
    box: Box,
    channels: int,
    engine: str,
    key: Key | None,
    durable: Durable | None = None,
    out: Pixels | None = None,
    name: str | None = None,
) -> Pixels:
    """``accel.codec.decode.decode`` of a file with the index kept for its key (None: there is none), to which it adds.

    ``durable``: the index's place in a cache that outlives the run; None: there is no such cache.
    """
    entries, plain = store.current(), isinstance(header, Header) and not header.progressive
    if engine == "pillow" or entries is None or key is None or not plain:
        return decode(data, header, box, channels, engine, None, out, name)
    index, read = _thread.index, False
    content, _ = _waiting.get(key) or (None, None)
    if content is not None:
        index.room(len(content))[:] = np.frombuffer(content, np.uint8)
    elif not entries.get(key, index.room):
        read = durable is not None and durable.read(index.room)
        if not read:
            if _full and durable is None:
                return decode(data, header, box, channels, engine, None, out, name)
            index.clear()
    made = decode(data, header, box, channels, engine, index, out, name)
    if index.used:
        _happened.append(counters.INDEXED)
    elif index.dropped:
        _happened.append(counters.MISFITS)
    lacking = durable if durable is not None and index.size and durable.lacks(index.bytes) else None
    if index.grown or read or lacking is not None:
        _waiting[key] = index.bytes.tobytes(), lacking
        if len(_waiting) >= _AT_ONCE:
            flush()
    return made


def knows(key: Key | None) -> bool:
    """Whether there is an index of a file in this run, because it was decoded before."""
    entries = store.current()
    return entries is not None and key is not None and (key in _waiting or entries.has(key))


def flush() -> None:
    """Keep the new indexes, and count them; called at the end of a batch.

    Between two decodes, which use all of a core's caches, each would take several times as long.
    """
    if not (_waiting or _happened):
        return
    entries = store.current()
    kept = 0
    with suppress(KeyError):  # another thread took the last one
        while entries is not None and _waiting:
            key, (content, durable) = _waiting.popitem()
            kept += _put(entries, key, content)
            if durable is not None:
                durable.put(content)
    if kept:
        counters.count(counters.INDEXES, kept)
    happened = []
    with suppress(IndexError):
        while _happened:
            happened.append(_happened.pop())
    for name in set(happened):
        counters.count(name, happened.count(name))


def is_full() -> bool:
    """Whether the store is full, so that files without an index stay without one."""
    return _full


def counted(used: int, dropped: int, kept: int, full: bool, crowded: int) -> None:
    """Count what compiled code has done with indexes of many files, as ``decoded`` and ``flush`` do for one."""
    global _full
    for name, number in ((counters.INDEXED, used), (counters.MISFITS, dropped), (counters.INDEXES, kept)):
        if number:
            counters.count(name, number)
    for _ in range(0 if _full else crowded + full):
        counters.fallback(FULL)
    _full |= full


def _put(entries: store.Store, key: Key, index: bytes | npt.NDArray[np.uint8]) -> bool:
    """Write an index to the store; return whether it is its file's first."""
    global _full
    state = entries.put(key, index)
    if state in (store_fields.FULL, store_fields.CROWDED):
        if not _full:
            counters.fallback(FULL)
        _full |= state == store_fields.FULL
    return state == store_fields.ADDED


_EMPTY = np.zeros(0, np.uint8)


def known(key: Key | None, durable: Durable | None = None) -> npt.NDArray[np.uint8] | None:
    """The bytes of a file's index, uint8, for a decoder of whole batches.

    Empty if there is no index yet; None if none can be kept.
    """
    entries = store.current()
    if entries is None or key is None:
        return None
    found = _EMPTY

    def room(size: int) -> npt.NDArray[np.uint8]:
        nonlocal found
        found = np.empty(size, np.uint8)
        return found

    if entries.get(key, room) or (durable is not None and durable.read(room)):
        return found
    return None if _full and durable is None else _EMPTY


class Indexes(NamedTuple):
    """Indexes of some files of a batch.

    Attributes:
        numbers: int64[k], the files' numbers. content: uint8, their indexes one after another. ends: int64[k], the end
            of each; an empty index: there is none yet.
    """

    numbers: npt.NDArray[np.int64]
    content: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, each: Mapping[int, npt.NDArray[np.uint8]]) -> Indexes:
        """Make ``Indexes`` of the bytes of each index, by the file's number."""
        parts = [index[: len(index) // 2 * 2] for index in each.values()]  # whole words, also if one is damaged
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return cls(np.fromiter(each, np.int64, len(each)), np.concatenate([_EMPTY, *parts]), ends)

    def each(self) -> dict[int, npt.NDArray[np.uint8]]:
        """The bytes of each index, by the file's number."""
        parts = np.split(self.content, self.ends[:-1]) if len(self.ends) else []
        return dict(zip(self.numbers.tolist(), parts, strict=True))

    def sizes(self) -> npt.NDArray[np.int64]:
        """The size of each index in bytes, int64[k]."""
        return np.diff(self.ends, prepend=0)


NO_INDEXES = Indexes.of({})


def known_of(keys: store.Keys) -> Indexes:
    """``known`` for many files."""
    entries = store.current()
    if entries is None:
        return NO_INDEXES
    found = Indexes(np.arange(len(keys.rows)), *entries.get_all(keys))
    chosen = keys.trusted & (found.sizes() > 0) if _full else keys.trusted
    return Indexes(found.numbers[chosen], found.content, found.ends[chosen])  # the others are empty


def keep(keys: store.Keys, found: Indexes) -> None:
    """Keep the indexes that a decoder of whole batches has made; ``keys``: the keys of their files."""
    entries = store.current()
    if entries is not None:
        became = np.bincount(entries.put_all(keys, found.content, found.ends), minlength=store_fields.ADDED + 1)
        full, crowded, _, added = became.tolist()
        counted(0, 0, added, full > 0, crowded)


def describe(keys: Sequence[Key | None], cache: str | None) -> list[str]:
    """Lines for ``accel.explain``: how many of these files have an index."""
    entries = store.current()
    if cache is None:
        return ["stream index: none is kept (cache=None)"]
    if entries is None:
        return ["stream index: none is kept (no memory that processes share)"]
    known = sum(key is not None and entries.has(key) for key in keys)
    used, size = entries.used()
    return [f"stream index: kept of {known} of {len(keys)} files, {used / 1e6:.1f} of {size / 1e6:.0f} MB used"]
