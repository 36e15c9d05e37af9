"""A store of small entries by the keys of files, in memory that a process shares with all that it starts.

No process waits for another, and each may be killed at any instruction. An entry is written where no other thread
writes, then the one word that says where it lies. A later entry of the same size overwrites it. So a reader may find a
mix of an old and a new entry, or another file's, if bits have flipped: users must be able to tell from a copy alone
whether it is sound, as the JPEG decoder can for an index. If two threads write one entry at once, at worst it is lost,
and the file's next reader makes it anew. Nothing is ever removed; the store is full when its budget is used.

The memory, as 8-byte words: a page that begins with the number of segments taken, hash tables, and the segments, which
threads take and fill one by one. Each table has 16 times the slots of the one before, and is used when the eight slots
for a key in that are taken, so that few files touch few pages. A slot holds 24 bits of the key's hash and the place of
its entry; an entry is the key, its content's size, and the content. ``store_kernels`` reads and writes all of it.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import reduction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.codec import store_fields as of
from accel.system import cores, counters, fork, rank_memory
from accel.system.memory import Key
from accel.system.native import units

SOURCES = ("codec/store_kernels.py", "codec/store_fields.py", "system/native/memory.py", "system/native/simd.py")
UNIT = units.Unit("store", *SOURCES, seconds=0.5)
_STORE = "u8[1]w i8[2] i8[1]"
_get = UNIT.function("codec.store_kernels", "get", f"{_STORE} u8[2] int u8[1]w")
_put = UNIT.function("codec.store_kernels", "put", f"{_STORE} i8[1]w u8[2] int u8[1]")
_get_all = UNIT.function("codec.store_kernels", "get_all", f"{_STORE} u8[2] ?[1] u8[1]w i8[1]w")
_put_all = UNIT.function("codec.store_kernels", "put_all", f"{_STORE} i8[1]w u8[2] ?[1] u8[1] i8[1] i8[1]w")

SHARE = 16
"""The store takes 1/SHARE of the memory that is free when it is made."""

_FIRST = 512  # slots of the first table
_SLOT_BYTES = 512  # bytes of the store per slot
_SMALLEST = 1 << 20
_SOME = 512  # words per entry that ``get_all`` has memory for at first
_NOTHING = np.zeros(0, np.uint64)

row = struct.Struct("=QQQqq").pack
"""Pack a key's parts to the bytes of a row of keys, as ``store_kernels`` takes them."""

NO_ROW = bytes(8 * of.KEY)


class Keys(NamedTuple):
    """Keys of many files: uint64 [files, KEY], and which of them can be trusted, bool [files]."""

    rows: npt.NDArray[np.uint64]
    trusted: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, keys: Sequence[Key | None]) -> Keys:
        rows = b"".join([NO_ROW if key is None else row(*key) for key in keys])
        trusted = np.array([key is not None for key in keys], np.bool_)
        return cls(np.frombuffer(rows, np.uint64).reshape(-1, of.KEY), trusted)

    def packed(self) -> list[bytes | None]:
        """Each key as bytes; None for one that cannot be trusted."""
        rows, size = self.rows.tobytes(), 8 * of.KEY
        trusted = self.trusted.tolist()
        return [rows[size * number : size * number + size] if each else None for number, each in enumerate(trusted)]

    def some(self, numbers: npt.NDArray[np.int64]) -> Keys:
        """The keys of the files with these numbers."""
        return Keys(self.rows[numbers], self.trusted[numbers])


class Layout(NamedTuple):
    """A store as compiled code takes it (``store_kernels``): its memory, its tables, and the places of its segments."""

    words: npt.NDArray[np.uint64]
    levels: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


NO_STORE = Layout(np.zeros(1, np.uint64), np.zeros((0, 2), np.int64), np.zeros(2, np.int64))


class Store:
    """A store in memory that is zero when it is new; the docstring of this file describes it."""

    def __init__(self, memory: Any) -> None:
        words = np.frombuffer(memory, np.uint64)
        levels: list[tuple[int, int]] = []
        word, left, slots = of.PAGE, words.nbytes // _SLOT_BYTES, _FIRST
        while left > 0:
            levels.append((word, slots // of.WINDOW))
            word, left = word + slots, left - slots
            slots = min(16 * slots, max(1 << (left - 1).bit_length(), of.WINDOW))
        data = -(-word // of.PAGE) * of.PAGE
        places = np.array([max(len(words) - data, 0) // of.SEGMENT, data], np.int64)
        self.layout = Layout(words, np.array(levels, np.int64), places)
        self.begin()

    def begin(self) -> None:
        """Have this process's threads take segments of their own from now on."""
        self._threads, self._left = threading.local(), list[Any]()

    def own(self) -> npt.NDArray[np.int64]:
        """The segment that this thread fills, int64 [AT, END] (``store_fields``)."""
        try:
            own = self._threads.own
        except AttributeError:
            self._threads.own = own = _Own(self._left)
        words: npt.NDArray[np.int64] = own.words
        return words

    def has(self, key: Key) -> bool:
        """Whether a file has an entry."""
        return self._get(key, _NOTHING) != 0

    def get(self, key: Key, room: Callable[[int], npt.NDArray[np.uint8]]) -> bool:
        """Copy a file's entry to ``room(size)``, memory of so many bytes; False if there is no entry, or no memory."""
        count = self._get(key, _NOTHING)
        if count == 0:
            return False
        out = room(8 * count)
        return len(out) == 8 * count == 8 * self._get(key, out.view(np.uint64))

    def put(self, key: Key, content: bytes | npt.NDArray[np.uint8]) -> int:
        """Write bytes, a multiple of 8, as a file's entry; return what became of it (``store_fields``)."""
        return _put(*self.layout, self.own(), _rows(key), 0, np.frombuffer(content, np.uint64))

    def get_all(self, keys: Keys) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The entries of files one after another, and where each ends, int64 [files]; an empty one: there is none."""
        out, ends = np.empty(_SOME * len(keys.rows), np.uint64), np.empty(len(keys.rows), np.int64)
        while (count := _get_all(*self.layout, *keys, out, ends)) > len(out):
            out = np.empty(count, np.uint64)
        return out[:count].view(np.uint8), 8 * ends

    def put_all(
        self, keys: Keys, contents: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Write files' entries, in the form of ``get_all``; return what became of each whose key can be trusted."""
        became = np.empty(len(ends), np.int64)
        _put_all(*self.layout, self.own(), *keys, contents.view(np.uint64), ends // 8, became)
        return became[keys.trusted]

    def used(self) -> tuple[int, int]:
        """The bytes of the segments that are taken, and of all segments."""
        segments = int(self.layout.places[of.SEGMENTS])
        return 8 * of.SEGMENT * min(int(self.layout.words[0]), segments), 8 * of.SEGMENT * segments

    def _get(self, key: Key, out: npt.NDArray[np.uint64]) -> int:
        return _get(*self.layout, _rows(key), 0, out)


class _Own:
    """The segment that a thread fills, ``words``. When the thread ends, another of the process takes what is left."""

    def __init__(self, left: list[Any]) -> None:
        self._left = left
        try:
            self.words = left.pop()
        except IndexError:
            self.words = np.zeros(2, np.int64)

    def __del__(self, at: int = of.AT, end: int = of.END) -> None:  # defaults: at exit, modules may be empty already
        if self.words[at] < self.words[end]:
            self._left.append(self.words)


def _rows(key: Key) -> npt.NDArray[np.uint64]:
    return np.frombuffer(row(*key), np.uint64).reshape(1, of.KEY)


# -- the store of this process ------------------------------------------------------------------------------

_store: Store | None = None
_file: tuple[int, os.stat_result] | None = None  # the memory's descriptor, and the status of its file
_tried = False


def current() -> Store | None:
    """The store that this process was given or has made; None if it has none."""
    return _store


def prepare() -> None:
    """Make the store on the first call, which must come before the processes that share it start."""
    global _tried
    if _tried:
        return
    _tried = True
    size = (left() or 0) // SHARE
    if size < _SMALLEST * cores.ranks():
        counters.fallback("there is too little memory to keep indexes of files")
        return
    try:
        file = rank_memory.shared_file(size)
        try:
            share(file, os.fstat(file).st_size)
        except BaseException:
            os.close(file)
            raise
    except (OSError, ValueError, AttributeError) as error:
        counters.fallback(f"no memory that processes share, so no indexes of files are kept: {error}")


def share(file: int, size: int) -> None:
    """Use this memory, new or another process's, as the store."""
    global _store, _file, _tried
    mapped = mmap.mmap(file, size)
    fork.leave_to_parent(mapped)  # freeing it would close its descriptor, which may be another file's in a daemon
    _store, _file, _tried = Store(mapped), (file, os.fstat(file)), True


def sent() -> Any:
    """The argument of ``join`` in a process that is being started; None if there is no store."""
    with suppress(OSError):
        if _file is not None and os.path.samestat(os.fstat(_file[0]), _file[1]):  # no other code has closed it
            return reduction.DupFd(_file[0])
    return None


def join(sent: Any) -> None:
    """Share the store of the process that started this one; None: it has none."""
    if sent is not None:
        file = sent.detach()
        try:
            share(file, os.fstat(file).st_size)
        except BaseException:
            os.close(file)
            raise


def left(meminfo: Path = Path("/proc/meminfo"), **groups: Path) -> int | None:
    """The bytes of memory that are free for this process, by the machine and by its control groups; None: unknown.

    The page cache counts as free. ``groups``: arguments of ``cores.of_groups``.
    """
    try:
        machine = int(meminfo.read_text().partition("MemAvailable:")[2].split(None, 1)[0]) << 10
    except (OSError, LookupError):
        return None
    limits = [machine]
    ask = "memory.{} memory.{} memory.stat".format
    for answer in cores.of_groups("memory", ask("limit_in_bytes", "usage_in_bytes"), ask("max", "current"), **groups):
        limit, used, *stat = answer.split()
        if limit.isdecimal():
            sizes = dict(zip(stat[::2], map(int, stat[1::2]), strict=False))
            cached = [sizes.get(f"total_{kind}_file", sizes.get(f"{kind}_file", 0)) for kind in ("active", "inactive")]
            limits.append(int(limit) - int(used) + sum(cached))
    return max(min(limits), 0)


def _begin_in_child() -> None:
    if _store is not None:
        _store.begin()


fork.register(in_child=_begin_in_child)
