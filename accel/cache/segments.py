"""The content of a cache: files that only grow, each filled by one process at a time, which holds its lock.

They are read by ``pread`` into memory of the reader's: a file that is shorter than its table says gives fewer bytes,
and no signal, as mapped memory would.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from accel.cache import reading
from accel.cache.entry import Entry
from accel.cache.folder import fcntl, locked
from accel.system.imports import LazyModule

_resource: Any = LazyModule("resource")  # which not every system has

_OPEN = 256  # files that are kept open for reading, at most
_SHARE = 4  # of the descriptors that a process may have they take one in so many: the others are the training's
_WRITTEN = 1 << 20  # bytes at a time: for more Linux takes larger pages, which may have to be found first


class File:
    """A descriptor that is closed once nobody reads from it any more."""

    def __init__(self, name: str, folder: int) -> None:
        self.descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "descriptor"):
            close(self.descriptor)


class Segments:
    """The segments in a folder, which stays the same if another takes its name.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: dict[int, File] = {}
        limit, _ = _resource.getrlimit(_resource.RLIMIT_NOFILE)
        self._most = _OPEN if limit < 0 else max(min(limit // _SHARE, _OPEN), 1)  # -1: there is no limit

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "_folder"):
            close(self._folder)

    def read(self, wanted: Sequence[tuple[Entry, int, int]], out: Any) -> int:
        """Read parts of entries, from a first one to one behind the last, into a buffer, one behind the other.

        How many entries are as their digests say, up to the first that is not, or whose segment cannot be read.
        """
        files = self.files([entry for entry, _, _ in wanted])
        asked = [(file.descriptor, *each) for file, each in zip(files, wanted, strict=False)]
        return reading.read(asked, memoryview(out)) if asked else 0

    def files(self, entries: Iterable[Entry]) -> list[File]:
        """The files of entries' segments, up to the first that cannot be opened; they stay open while they are held."""
        found = list[File]()
        for entry in entries:
            try:
                found.append(self._open.get(entry.segment) or self._opened(entry.segment))
            except (OSError, OverflowError):
                break
        return found

    def size(self, segment: int) -> int:
        """The bytes of a segment's file.

        Raises:
            OSError: it cannot be opened.
        """
        return os.fstat(self._opened(segment).descriptor).st_size

    def _opened(self, segment: int) -> File:
        file = self._open.get(segment)
        if file is None:
            file = File(name_of(segment), self._folder)
            while len(self._open) >= self._most:
                with suppress(StopIteration, KeyError, RuntimeError):  # another thread did
                    del self._open[next(iter(self._open))]
            self._open[segment] = file
        return file

    def lacks(self, segment: int) -> bool:
        """Whether this process has nothing left to open a segment's file with."""
        try:
            self._opened(segment)
        except OSError as error:
            return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
        except OverflowError:  # a number that no file has
            pass
        return False

    def forget(self, segment: int) -> None:
        """Open a segment's file anew next time."""
        self._open.pop(segment, None)

    def lock(self, segment: int, is_new: bool) -> int | None:
        """A descriptor to write to a segment, which nobody else has; None: somebody has.

        Raises:
            OSError: the file cannot be made or opened.
        """
        file = locked(name_of(segment), exclusive=True, folder=self._folder)
        if file is not None and is_new and os.fstat(file).st_size:  # of a table that was lost
            os.ftruncate(file, 0)
        return file

    @staticmethod
    def write(file: int, offset: int, content: Any) -> None:
        """Write bytes.

        Raises:
            OSError: there is no room on the disk, or what else a disk may say.
        """
        view = memoryview(content).cast("B")
        while len(view):
            count = os.pwrite(file, view[:_WRITTEN], offset)
            view, offset = view[count:], offset + count

    def remove(self, taken: Sequence[tuple[int, int]]) -> None:
        """Remove segments' files, whose locks are held; those who still read them find that they are short."""
        for segment, file in taken:
            self.forget(segment)
            with suppress(OSError):
                os.ftruncate(file, 0)
            with suppress(OSError):
                os.unlink(name_of(segment), dir_fd=self._folder)
        release(taken)

    def remove_others(self, known: set[int]) -> None:
        """Remove the files that are no segment's: of those that were being taken back when a process was killed."""
        for name in os.listdir(self._folder):
            if name.isdecimal() and int(name) not in known:
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._folder)


def name_of(segment: int) -> str:
    """The name of a segment's file."""
    return f"{segment:08}"


def release(held: Iterable[tuple[int, int]]) -> None:
    """Let go of segments' locks, whoever else has copies of the descriptors."""
    for _, file in held:
        if file >= 0:
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)
