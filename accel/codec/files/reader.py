"""Reading whole files: their bytes, their keys, and the headers of plain JPEG files.

One call of compiled code opens, reads and describes files, into any memory. On other systems than 64-bit Linux, if
``os.open`` was replaced, and for other files than ordinary ones of a few hundred kilobytes, Python reads file by file.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.codec.files import fields as of
from accel.codec.files import packs
from accel.codec.header import Header
from accel.codec.store import Keys
from accel.system import counters, memory
from accel.system.memory import Key, key_of
from accel.system.native import units

UNIT = units.Unit(
    "files",
    *("codec/files/kernels.py", "codec/files/fields.py", "codec/header.py"),
    *("system/native/memory.py", "system/native/simd.py"),
    seconds=0.5,
)
_read = UNIT.function("codec.files.kernels", "read", "i8[1] u1[1] int int int int i8[1]w i8[2]w i8[2]w i8[1]w")
_look = UNIT.function("codec.files.kernels", "look", "i8[1] u1[1] int i8[1]w i8[2]w")


class Buffer(bytearray):
    """One of a limited number of buffers of a size. ``free``: the unused ones; None in it: one that is not made yet.

    Attributes:
        address: the address of its bytes.
    """

    def __init__(self, free: list[Buffer | None], size: int) -> None:
        self.free = free
        super().__init__(size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self))

    def __del__(self) -> None:
        self.free.insert(0, None)  # taken after all existing ones


class FileBuffers:
    """Buffers for whole files, which are used again; when all are in use, a file takes memory of its own, of its size.

    They are enough for the files of a batch that is being made, but not for a data set that is kept in memory.
    """

    SMALL, ORDINARY = 1 << 14, 1 << 18

    def __init__(self) -> None:
        # the files of a large batch; with fewer, reading takes nearly twice as long
        self._free: list[Buffer | None] = [None] * 256

    def take(self) -> Buffer | None:
        """A buffer of ``ORDINARY`` bytes, to be given back after use; None if all are in use."""
        try:
            return self._free.pop() or Buffer(self._free, self.ORDINARY)
        except IndexError:
            return None

    def fitting(self, buffer: Buffer, size: int) -> bytes | bytearray:
        """A buffer's first ``size`` bytes, in memory not much larger: itself, or a copy, and it is given back."""
        if size > self.SMALL:
            return buffer
        with memoryview(buffer)[:size] as content:
            copied = bytes(content)
        self.give_back(buffer)
        return copied

    def give_back(self, buffer: bytes | bytearray | None) -> None:
        """Give back a buffer, of which there must be no views any more; other objects are ignored."""
        free = getattr(buffer, "free", None)  # a finalizer calls this, so it uses no names of the module
        if free is not None:
            free.append(buffer)


file_buffers = FileBuffers()
"""Fresh pages are expensive: the operating system takes longer to hand out those of a 110 KB file than to fill them."""


class File(NamedTuple):
    """A file that was read: the first ``size`` bytes of ``buffer``.

    Attributes:
        header: the header of a plain JPEG file, as ``header.claim`` returns it; None: ``header.claim`` must be asked.
    """

    buffer: bytes | bytearray
    size: int
    key: Key | None
    header: Header | None = None


class Table(NamedTuple):
    """Files that were read into one piece of memory, one behind another.

    Attributes:
        rows: int64 [files, FIELDS], each file's fields (``fields``). places: int64 [files, 2], offsets and sizes.
        missing, no_room, largest, needed, unusual: numbers for all files, see ``fields``.
    """

    rows: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    missing: int
    no_room: int
    largest: int
    needed: int
    unusual: int


def read(path: Any) -> File | None:
    """Read a file into a reused buffer; None if it cannot be read: reading it in the usual way will raise the error.

    Raises:
        PackError: it is in a pack that cannot be used.
    """
    names = _opened((path,))
    file = _by_python(path) if names is None else _by_compiled(path, names)
    return read(path) if file is None and packs.content_of(path) is None and packs.find(path) else file


def read_to(paths: Sequence[Any], address: int, capacity: int, most: int) -> Table | None:
    """Read files to an address with so much capacity in bytes, at multiples of ``ALIGNED``, as far as they fit.

    ``most``: the most pixels of a plain picture that is not ``unusual``. None if they must be read in the usual way.
    """
    names = _opened(paths)
    if names is None:
        return None
    places = np.empty((len(paths), 2), np.int64)
    return Table(_rows(names, paths, places, address, capacity, most), places, *_work.totals.tolist())


def read_one_to(path: Any, address: int, capacity: int) -> list[int] | None:
    """Read a file to an address with so much capacity; return its fields (``fields``).

    None if it does not fit, or must be read in the usual way.
    """
    names = _opened((path,))
    if names is None:
        return None
    row: list[int] = _rows(names, (path,), _work.place, address, capacity, 0).tolist()[0]
    return None if row[of.STATE] <= of.LARGE else row


def keys(paths: Sequence[Any]) -> Keys | None:
    """The keys of files by their paths, trusted only for files that may be read; None if each must be found in the
    usual way."""
    names = _names(paths) if (os.stat, os.access) == _STAT else None
    if names is None:
        return None
    rows = _members(paths)
    _look(calls(), np.frombuffer(names, np.uint8), _oldest(), _work.status, rows)
    found = np.ascontiguousarray(rows[:, of.DEVICE : of.CHANGED + 1]).view(np.uint64)
    return Keys(found, rows[:, of.STATE] == of.PLAIN)


def file_key(path: Any) -> Key | None:
    """The key of a file by its path; None if it may not be read, or its key cannot be trusted."""
    try:
        if packs.known and (content := packs.content_of(path)) is not None:
            return packs.key_of_member(content)
        return key_of(os.stat(path)) if os.access(path, os.R_OK) else None
    except (OSError, ValueError, TypeError):  # opening it in the usual way will raise it
        return None


# -- which files compiled code opens ------------------------------------------------------------------------

_OPEN, _STAT = os.open, (os.stat, os.access)
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


def _opened(paths: Sequence[Any]) -> bytes | None:
    """``_names`` of files to open, which is audited; None also if ``os.open`` was replaced or would refuse one."""
    names = _names(paths) if os.open is _OPEN else None
    if names is None:
        return None
    try:
        for path in paths:
            sys.audit("open", path, None, _FLAGS)
    except (OSError, ValueError):  # which belongs to one of the files only
        return None
    return names


def _names(paths: Sequence[Any]) -> bytes | None:
    """Names for the system, each ending with a 0; None if compiled code cannot be used for these paths."""
    return _encoded(paths) if set(map(type, paths)) == {str} and agrees() else None


def _encoded(paths: Sequence[str]) -> bytes | None:
    try:
        names = "\0".join(paths).encode(*_ENCODING) + b"\0"
    except ValueError:
        return None
    return names if names.count(0) == len(paths) else None  # a name with a 0 in it


@cache
def calls() -> Any:
    """int64 [CALLS] (``fields``); None on other systems than 64-bit Linux."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        library = ctypes.CDLL(None)
        functions = library.open, library.statx, library.pread, library.close, library.access
        return np.array([*(ctypes.cast(each, ctypes.c_void_p).value for each in functions), _FLAGS], np.int64)
    except (OSError, AttributeError, TypeError):
        return None


@cache
def agrees() -> bool:
    """Whether compiled code reads this source file as Python does; tried once."""
    names = None if calls() is None else _encoded([__file__])
    if names is None:
        return False
    same = False
    try:
        expected, found = _by_python(__file__), _by_compiled(__file__, names)
        if found is not None and expected is not None and found.key == expected.key:
            same = bytes(found.buffer[: found.size]) == bytes(expected.buffer[: expected.size])
    except Exception:
        same = False  # it could not be compiled
    if not same:
        counters.fallback("files are read by Python: when it was tried, compiled code did not read the same")
    return same


# -- two ways to read ---------------------------------------------------------------------------------------


class _Work(threading.local):
    """A thread's arrays."""

    def __init__(self) -> None:
        self.status = np.empty(32, np.int64)
        self.place = np.empty((1, 2), np.int64)
        self.totals = np.empty(of.TOTALS, np.int64)


_work = _Work()


def _oldest() -> int:
    """The latest time of a change, in nanoseconds, that is trusted (``memory.SETTLED``)."""
    return int((time.time() - memory.SETTLED) * 1e9)


def _rows(
    names: bytes, paths: Sequence[Any], places: npt.NDArray[np.int64], address: int, capacity: int, most: int
) -> npt.NDArray[np.int64]:
    """Have compiled code read files and fill ``places``; return their rows, and leave the numbers for all in the
    thread's ``totals``."""
    rows, work = _members(paths), _work
    packed = np.frombuffer(names, np.uint8)
    _read(calls(), packed, address, capacity, _oldest(), most, work.status, rows, places, work.totals)
    return rows


def _members(paths: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Rows for files that compiled code is to read, with what packs have of them."""
    rows = np.empty((len(paths), of.FIELDS), np.int64)
    rows[:, of.STATE] = -1
    if packs.known and (contents := packs.contents_of(paths)) is not None:
        rows[:, [of.STATE, of.READ, of.BYTES]] = contents
    return rows


def _by_compiled(path: str, names: bytes) -> File | None:
    buffer = file_buffers.take()
    if buffer is None:
        return _by_python(path)
    (row,) = _rows(names, (path,), _work.place, buffer.address, FileBuffers.ORDINARY, 0).tolist()
    state, size = row[of.STATE], row[of.READ]
    if state <= of.LARGE:
        file_buffers.give_back(buffer)
        return _by_python(path) if state == of.LARGE else None
    header = plain_header(row) if state == of.PLAIN else None
    return File(file_buffers.fitting(buffer, size), size, key(row), header)


def _by_python(path: Any) -> File | None:
    """``read`` without compiled code.

    Four system calls for an ordinary file: each also costs time later, by what it evicts from the caches.
    """
    if packs.known and (member := packs.content_of(path)) is not None:
        data = packs.read(path) or b""
        return File(data, len(data), packs.key_of_member(member))
    unused = buffer = file_buffers.take()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            key = key_of(status)  # before the file is read, which may take long
            size = FileBuffers.ORDINARY if buffer is None else os.preadv(descriptor, (buffer,), 0)
            if buffer is None or size < status.st_size or size == FileBuffers.ORDINARY:
                content = _all_of(descriptor)  # it is large, or its file system returns less than it has
                return File(content, len(content), key)
            unused = None
            return File(file_buffers.fitting(buffer, size), size, key)
        finally:
            os.close(descriptor)
    except (OSError, AttributeError, TypeError, ValueError):  # it is no path, or the system lacks these calls
        return None
    finally:
        file_buffers.give_back(unused)


def _all_of(descriptor: int) -> bytes:
    """A file's content, in memory of exactly its size."""
    size = os.fstat(descriptor).st_size
    content = os.pread(descriptor, size + 1, 0)
    while len(content) != size and (more := os.pread(descriptor, 16 << 20, len(content))):  # very large, or growing
        content += more
    return content


# -- a file's fields ----------------------------------------------------------------------------------------

_ALL_BITS = (1 << 64) - 1


def key(row: list[int]) -> Key | None:
    """The key in a file's fields, with device and inode as unsigned numbers; None if it cannot be trusted."""
    device, inode, size, written, changed = row[of.DEVICE : of.CHANGED + 1]
    return None if written < 0 else (device & _ALL_BITS, inode & _ALL_BITS, size, written, changed)


def plain_header(row: list[int]) -> Header:
    scan, components, height, width = row[of.SCAN : of.WIDTH + 1]
    return Header(width, height, "RGB" if components == 3 else "L", scan=scan)


def put_header(row: list[int] | npt.NDArray[np.int64], header: Header) -> None:
    row[of.SCAN :] = header.scan, header.channels, header.height, header.width
