"""Reading whole files, several in one call of compiled code, with their keys and the headers of plain JPEG files.

On other systems than 64-bit Linux, if ``os.open`` was replaced, and for other files than ordinary ones of a few hundred
kilobytes, ``file_buffers`` reads file by file.
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

from accel.codec import opening_fields as of
from accel.codec.file_buffers import FileBuffers, file_buffers
from accel.codec.header import Header
from accel.codec.store import Keys
from accel.native import units
from accel.system import counters, memory
from accel.system.memory import Key

UNIT = units.Unit(
    "opening",
    *("codec/opening_kernels.py", "codec/opening_fields.py", "codec/header.py", "codec/progressive.py"),
    *("codec/jpeg/memory.py", "codec/jpeg/simd.py"),
    seconds=0.5,
)
_read = UNIT.function("codec.opening_kernels", "read", "i8[1] u1[1] int i8[1] int i8[1]w i8[2]w")
_read_behind = UNIT.function(
    "codec.opening_kernels", "read_behind", "i8[1] u1[1] int u1[1]w int int int i8[1]w i8[2]w i8[2]w i8[1]w"
)

_look = UNIT.function("codec.opening_kernels", "look", "i8[1] u1[1] int i8[1]w i8[2]w")


class File(NamedTuple):
    """A file that was read: the first ``size`` bytes of ``buffer``.

    Attributes:
        header: the header of a plain JPEG file, as ``header.claim`` returns it; None: ``header.claim`` must be asked.
    """

    buffer: bytes | bytearray
    size: int
    key: Key | None
    header: Header | None = None


def read(paths: Sequence[Any]) -> list[File | None]:
    """Read files; None for one that cannot be read in this way: reading it in the usual way will raise the error."""
    if not paths or os.open is not _OPEN or set(map(type, paths)) != {str} or not agrees():
        return [_by_python(path) for path in paths]
    return _by_compiled(paths)


def read_one(path: Any) -> File | None:
    """Read a file; see ``read``."""
    if type(path) is not str or os.open is not _OPEN or not agrees():
        return _by_python(path)
    try:
        name = path.encode(*_ENCODING) + b"\0"
    except ValueError:
        return None
    buffer = file_buffers.take() if name.count(0) == 1 else None
    if buffer is None:
        return _by_python(path)
    row, oldest = _read_one(path, name, buffer.place, FileBuffers.ORDINARY)
    return _file(path, buffer, row, oldest)


def _read_one(path: str, name: bytes, place: npt.NDArray[np.int64], room: int) -> tuple[list[int], float]:
    """Read a file to an address; return its fields (``opening_fields``) and the latest time, in ns, to be trusted."""
    sys.audit("open", path, None, _FLAGS)
    oldest, work = (time.time() - memory.SETTLED) * 1e9, _work
    _read(calls(), np.frombuffer(name, np.uint8), _FLAGS, place, room, work.status, work.one)
    return work.one.tolist()[0], oldest


def read_to(path: Any, address: int, room: int) -> list[int] | None:
    """Read a file to an address with so much room; return its fields, as of ``Behind.known``.

    None if it does not fit, or must be read in the usual way.
    """
    if type(path) is not str or os.open is not _OPEN or not agrees():
        return None
    try:
        name = path.encode(*_ENCODING) + b"\0"
    except ValueError:
        return None
    if name.count(0) != 1:
        return None
    _work.place[0] = address
    row, oldest = _read_one(path, name, _work.place, room)
    if not 0 <= row[of.WRITTEN] <= row[of.CHANGED] <= oldest:
        row[of.WRITTEN] = row[of.CHANGED] = -1
    return None if row[of.STATE] <= of.LARGE else row


def _by_python(path: Any) -> File | None:
    found = file_buffers.read(path)
    return None if found is None else File(*found)


class Behind(NamedTuple):
    """Files that were read into one piece of memory, one after another.

    Attributes:
        known: int64 [files, FIELDS], each file's fields (``opening_fields``); times that cannot be trusted are -1.
        places: int64 [files, 2], each file's offset and size.
        gone, no_room, largest, needed, end, asked: numbers for all files, see ``opening_fields``.
    """

    known: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    gone: int
    no_room: int
    largest: int
    needed: int
    end: int
    asked: int


def read_behind(paths: Sequence[Any], room: npt.NDArray[np.uint8], aligned: int, most: int) -> Behind | None:
    """Read files into ``room`` one after another, at multiples of ``aligned`` bytes, as far as they fit.

    ``most``: the most pixels of a plain picture that is not counted as ``asked``. None if the files must be read in the
    usual way.
    """
    if not paths or os.open is not _OPEN or set(map(type, paths)) != {str} or not agrees():
        return None
    names = _names(paths)
    if names is None:
        return None
    known, places = np.empty((len(paths), of.FIELDS), np.int64), np.empty((len(paths), 2), np.int64)
    oldest, work = int((time.time() - memory.SETTLED) * 1e9), _work
    given = calls(), np.frombuffer(names, np.uint8), _FLAGS, room, aligned, oldest, most, work.status
    _read_behind(*given, known, places, work.said)
    return Behind(known, places, *work.said.tolist())


def keys(paths: Sequence[Any]) -> Keys | None:
    """The keys of files by their paths, trusted only for files that may be read; None if each must be found in the
    usual way."""
    if not paths or (os.stat, os.access) != _STAT or set(map(type, paths)) != {str} or not agrees():
        return None
    try:
        names = _joined(paths)
    except ValueError:
        return None
    if names is None:
        return None
    found, oldest = np.empty((len(paths), of.FIELDS), np.int64), int((time.time() - memory.SETTLED) * 1e9)
    _look(calls(), np.frombuffer(names, np.uint8), oldest, _work.status, found)
    rows = np.ascontiguousarray(found[:, of.DEVICE : of.CHANGED + 1]).view(np.uint64)
    return Keys(rows, found[:, of.STATE] == of.PLAIN)


def _names(paths: Sequence[str]) -> bytes | None:
    """Names for the system, each ending with a 0; None if Python's own open would refuse one."""
    try:
        names = _joined(paths)
        for path in paths:
            sys.audit("open", path, None, _FLAGS)
    except (OSError, ValueError):  # which belongs to one of the files only
        return None
    return names


def _joined(paths: Sequence[str]) -> bytes | None:
    names = "\0".join(paths).encode(*_ENCODING) + b"\0"
    return names if names.count(0) == len(paths) else None  # a name with a 0 in it


def _by_compiled(paths: Sequence[str]) -> list[File | None]:
    names = _names(paths)
    if names is None:
        return [_by_python(path) for path in paths]
    buffers = [buffer for _ in paths if (buffer := file_buffers.take()) is not None]
    found = np.empty((len(buffers), of.FIELDS), np.int64)
    oldest = (time.time() - memory.SETTLED) * 1e9
    places = np.array([int(buffer.place[0]) for buffer in buffers], np.int64)
    _read(calls(), np.frombuffer(names, np.uint8), _FLAGS, places, FileBuffers.ORDINARY, _work.status, found)
    rows = zip(paths, buffers, found.tolist(), strict=False)
    files = [_file(path, buffer, row, oldest) for path, buffer, row in rows]
    return files + [_by_python(path) for path in paths[len(buffers) :]]


def _file(path: str, buffer: Any, row: list[int], oldest: float) -> File | None:
    state, size, _, _, _, written, changed = row[: of.CHANGED + 1]
    if state <= of.LARGE:
        file_buffers.give_back(buffer)
        return _by_python(path) if state == of.LARGE else None
    file_key = key(row) if 0 <= written <= changed <= oldest else None
    header = plain_header(row) if state == of.PLAIN else None
    if size <= FileBuffers.SMALL:
        buffer = file_buffers.smaller(buffer, size)
    file: File = _new(File, (buffer, size, file_key, header))
    return file


def key(row: list[int]) -> Key | None:
    """The key in a file's fields, with device and inode as unsigned numbers; None if it cannot be trusted."""
    device, inode, size, written, changed = row[of.DEVICE : of.CHANGED + 1]
    return None if written < 0 else (device & _ALL_BITS, inode & _ALL_BITS, size, written, changed)


_ALL_BITS = (1 << 64) - 1


def plain_header(row: list[int]) -> Header:
    """The header of a plain file from its fields (``opening_fields``)."""
    scan, components, height, width = row[of.SCAN : of.WIDTH + 1]
    header: Header = _new(
        Header, (width, height, "RGB" if components == 3 else "L", False, True, True, scan, "pillow", False)
    )
    return header


def put_header(row: list[int] | npt.NDArray[np.int64], header: Header) -> None:
    """Write a header into a file's fields (``opening_fields``)."""
    row[of.SCAN :] = header.scan, header.channels, header.height, header.width  # type: ignore[call-overload]


_new: Any = tuple.__new__  # a named tuple's own ``__new__`` takes longer
_OPEN, _STAT = os.open, (os.stat, os.access)
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_NAMES = ("open", "statx", "pread", "close", "access")


class _Work(threading.local):
    """A thread's arrays."""

    def __init__(self) -> None:
        self.status = np.empty(32, np.int64)
        self.one = np.empty((1, of.FIELDS), np.int64)
        self.place = np.empty(1, np.int64)
        self.said = np.empty(of.SAID, np.int64)


_work = _Work()


@cache
def calls() -> Any:
    """The addresses of libc's functions of ``_NAMES``, int64; None on other systems than 64-bit Linux."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        library = ctypes.CDLL(None)
        return np.array([ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _NAMES], np.int64)
    except (OSError, AttributeError, TypeError):
        return None


@cache
def agrees() -> bool:
    """Whether compiled code reads this source file as Python does; tried once."""
    if calls() is None:
        return False
    same = False
    try:
        expected, (found,) = _by_python(__file__), _by_compiled([__file__])
        if found is not None and expected is not None and found.key == expected.key:
            same = bytes(found.buffer[: found.size]) == bytes(expected.buffer[: expected.size])
    except Exception:
        same = False  # it could not be compiled
    if same:
        return True
    counters.fallback("files are read by Python: when it was tried, compiled code did not read the same")
    return False
