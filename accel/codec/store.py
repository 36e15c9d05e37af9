"""A store of small entries by the keys of files, in memory that a process shares with all that it starts.

Nobody waits for anybody, and a process may be killed at any instruction. An entry is written where nobody else writes,
then the one word that says where it lies. A larger one that takes the place of an older is written over that. So what
a reader finds may be half old and half new, or anybody's at all: it takes a copy, and believes it by its checksum.
Where two write at once, at worst an entry of each is lost, which its file's next reader makes anew. Nothing is ever
taken out; the store is full when its budget is used.

In memory, as 8-byte words: a page with the number of segments that are taken, hash tables, the owner of each segment,
the segments, of ``_SEGMENT`` bytes. A thread fills segments of its own. Each table has 16 times the slots of the
one before and is used once the eight slots of a key there are taken, so that few files touch few pages. A slot is 24
bits of the key's hash and the place of its entry; an entry is ``_HEAD`` and the content.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from multiprocessing import reduction
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from accel.codec import store_fields as of
from accel.system import cores, counters, fork, memory
from accel.system.memory import Key

Found = tuple[int, int]
"""Where an entry lies (0: nowhere), and the slot that says so, or may (0: none is left)."""

SHARE = 16
"""The store takes one part in so many of the memory that is left when it is made."""

_PAGE, _WINDOW, _SEGMENT, _FIRST = of.PAGE, of.WINDOW, of.SEGMENT, 512
_SLOT_BYTES = 512  # of entries that there is a slot for
_SMALLEST = 1 << 20
_HEAD = struct.Struct("=QQQqqII")  # the key, the size of the content, its checksum
_KEY = struct.Struct("=QQQqq")
_SIZES = struct.Struct("=II")  # the end of a head


class Compiled(NamedTuple):
    """A store as compiled code takes it (``store_kernels``): its memory as uint64, its tables, and what is where."""

    words: npt.NDArray[np.uint64]
    levels: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


class Store:
    """A store in memory that is zero when it is new: see this file's head."""

    def __init__(self, memory: Any) -> None:
        self._bytes = memoryview(memory)
        self._words = self._bytes.cast("Q")
        self._levels: list[tuple[int, int]] = []  # the first word of each table, and how many windows it has
        word, left, slots = _PAGE // 8, len(self._bytes) // _SLOT_BYTES, _FIRST
        while left > 0:
            self._levels.append((word, slots // _WINDOW))
            word, left = word + slots, left - slots
            slots = min(16 * slots, max(1 << (left - 1).bit_length(), _WINDOW))
        self._owners = word
        self._segments = (len(self._bytes) - 8 * word - _PAGE) // (_SEGMENT + 8)
        self._data = -(-8 * (word + self._segments) // _PAGE) * _PAGE
        self.begin()

    def begin(self) -> None:
        """Fill segments of this process's own from now on."""
        self._threads, self._left = threading.local(), list[Any]()

    @cached_property
    def compiled(self) -> Compiled:
        places = np.array([self._owners, self._segments, self._data >> 3], np.int64)
        return Compiled(np.frombuffer(self._bytes, np.uint64), np.array(self._levels, np.int64), places)

    def own(self) -> npt.NDArray[np.uint64]:
        """What this thread knows of the segment that it fills, for compiled code of this thread."""
        words: npt.NDArray[np.uint64] = self._own.words
        return words

    @property
    def _own(self) -> _Own:
        """The segment that this thread fills."""
        try:
            return self._threads.own  # type: ignore[no-any-return]
        except AttributeError:
            self._threads.own = own = _Own(self._left)
            return own

    def find(self, key: Key) -> Found:
        """Look for a file's entry."""
        words, mark, packed = self._words, hash(key), _KEY.pack(*key)
        tag = _tag(mark)
        for first, windows in self._levels:
            place = first + _WINDOW * (mark % windows)
            for word in words[place : place + _WINDOW].tolist():
                if word == 0:
                    return 0, place
                if word >> 40 == tag:
                    at = (word & (1 << 40) - 1) << 3
                    if self._data <= at and self._bytes[at : at + _KEY.size] == packed:
                        return at, place
                place += 1
        return 0, 0

    def get(self, key: Key, found: Found, room: Callable[[int], Any]) -> bool:
        """Copy a file's entry into the bytes that ``room`` gives for their number; False: there is none."""
        at = found[0]
        if at == 0:
            return False
        start = at + _HEAD.size
        size, checksum = _SIZES.unpack_from(self._bytes, at + _KEY.size)
        if not 0 < size <= len(self._bytes) - start:
            return False
        out = memoryview(room(size))
        if len(out) != size:
            return False
        out[:] = self._bytes[start : start + size]
        return bool(_checksum(key, out) == checksum)

    def put(self, key: Key, content: Any, found: Found) -> bool:
        """Keep bytes as a file's entry, in place of the one that was found; False where there is no room."""
        size, (at, place) = len(content), found
        if at == 0 and place and self._words[place]:  # a file's came there meanwhile, perhaps this one's
            at, place = self.find(key)
        is_new = at == 0 or _SIZES.unpack_from(self._bytes, at + _KEY.size)[0] != size
        if is_new:
            at = self._room(_HEAD.size + size) if place else 0
            if at == 0:
                return False
        start = at + _HEAD.size
        self._bytes[start : start + size] = content
        _HEAD.pack_into(self._bytes, at, *key, size, _checksum(key, content))
        if is_new:
            self._words[place] = _tag(hash(key)) << 40 | at >> 3
        return True

    def used(self) -> tuple[int, int]:
        """The bytes that entries have taken, by whole segments, and how many there are for them."""
        return min(self._words[0], self._segments) * _SEGMENT, self._segments * _SEGMENT

    def _room(self, size: int) -> int:
        """The address of so many bytes in a segment of this thread's own; 0: none are left."""
        own, size = self._own.cells, -(-size // 8) * 8
        if self._words[own[of.OWNER]] != own[of.TOKEN]:  # another took the segment at the same time
            own[of.AT] = own[of.END] = 0
        if own[of.AT] + size > own[of.END]:
            self._claim(own, -(-size // _SEGMENT))
            if own[of.AT] + size > own[of.END]:
                return 0
        at: int = own[of.AT]
        own[of.AT] = at + size
        return at

    def _claim(self, own: memoryview, count: int) -> None:
        """Take so many segments side by side for this thread."""
        words, first = self._words, self._words[0]
        while first + count <= self._segments:
            places = range(self._owners + first, self._owners + first + count)
            if not any(words[places.start : places.stop].tolist()):
                for place in places:
                    words[place] = own[of.TOKEN]
                words[0] = first + count
                if all(words[place] == own[of.TOKEN] for place in places):  # or another was here at the same time
                    start = self._data + first * _SEGMENT
                    own[of.AT] = own[of.AT] if start == own[of.END] else start
                    own[of.END], own[of.OWNER] = start + count * _SEGMENT, places.stop - 1
                    return
            first += 1
        own[of.AT] = own[of.END] = 0


class _Own:
    """The segment that a thread fills: ``words`` as ``store_fields`` has them, and the same as ``cells``.

    What a thread has left when it ends, another of its process fills.
    """

    def __init__(self, left: list[Any]) -> None:
        self._left = left
        try:
            self.words = left.pop()
        except IndexError:
            self.words = np.array([int.from_bytes(os.urandom(8), "little") | 1, 0, 0, 0], np.uint64)
        self.cells = self.words.data

    def __del__(self, at: int = of.AT, end: int = of.END) -> None:  # also where modules are emptied already
        if self.cells[at] < self.cells[end]:
            self._left.append(self.words)


def _tag(mark: int) -> int:
    return mark >> 40 & 0xFFFFFF


def _checksum(key: Key, content: Any) -> int:
    """Of bytes that belong to a file: another's have another."""
    return crc32(content, hash(key) & 0xFFFFFFFF)


# -- the store of this process ------------------------------------------------------------------------------

_store: Store | None = None
_file: tuple[int, os.stat_result] | None = None  # a descriptor, and which file it was made for
_tried = False


def current() -> Store | None:
    """The store that this process was given, or has made."""
    return _store


def prepare() -> None:
    """Make the store if there is none yet, which must be before the processes start that are to share it."""
    global _tried
    if _tried:
        return
    _tried = True
    size = left() // SHARE // cores.ranks()
    if size < _SMALLEST:
        counters.fallback("there is too little memory to keep indexes of files")
        return
    try:
        file = memory.anonymous_file(size)
        try:
            share(file, size)
        except BaseException:
            os.close(file)
            raise
    except (OSError, ValueError, AttributeError) as error:
        counters.fallback(f"no memory that processes share, so no indexes of files are kept: {error}")


def share(file: int, size: int) -> None:
    """Take this memory, which is new or another process's, for the store."""
    global _store, _file, _tried
    mapped = mmap.mmap(file, size)
    fork.leave_to_parent(mapped)  # its end would close its descriptor, which may be another's: daemons close all
    _store, _file, _tried = Store(mapped), (file, os.fstat(file)), True


def sent() -> Any:
    """The argument of ``join`` in a process that is being started; None where there is no store."""
    with suppress(OSError):
        if _file is not None and os.path.samestat(os.fstat(_file[0]), _file[1]):  # nobody closed what was not theirs
            return reduction.DupFd(_file[0])
    return None


def join(sent: Any) -> None:
    """Share the store of the process that started this one."""
    if sent is not None:
        file = sent.detach()
        try:
            share(file, os.fstat(file).st_size)
        except BaseException:
            os.close(file)
            raise


def left(meminfo: Path = Path("/proc/meminfo"), **groups: Path) -> int:
    """The bytes of memory that are left to this process, by the machine and by its control groups.

    What is kept of files that were read counts as left. ``groups``: as ``cores.of_groups`` takes them.
    """
    try:
        machine = int(meminfo.read_text().partition("MemAvailable:")[2].split(None, 1)[0]) << 10
    except (OSError, LookupError):
        return 0
    limits = [machine]
    ask = "memory.{} memory.{} memory.stat".format
    for said in cores.of_groups("memory", ask("limit_in_bytes", "usage_in_bytes"), ask("max", "current"), **groups):
        limit, used, *stat = said.split()
        if limit.isdecimal():
            sizes = dict(zip(stat[::2], map(int, stat[1::2]), strict=False))
            cached = [sizes.get(f"total_{kind}_file", sizes.get(f"{kind}_file", 0)) for kind in ("active", "inactive")]
            limits.append(int(limit) - int(used) + sum(cached))
    return max(min(limits), 0)


def _begin_in_child() -> None:
    if _store is not None:
        _store.begin()


fork.register(in_child=_begin_in_child)
