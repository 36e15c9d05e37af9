"""Segments, the content of a cache: files that only grow, each filled by one process at a time, which has its lock.

They are read by ``pread`` into the reader's memory: a file that is shorter than its table says gives fewer bytes,
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
from accel.system.file_locks import locked, unlock
from accel.system.imports import LazyModule

_resource: Any = LazyModule("resource")  # not every system has it

_OPEN = 256  # the most files that are kept open for reading
_SHARE = 4  # they take at most one in so many of the process's descriptors: the training needs the others
_WRITTEN = 1 << 20  # bytes written at a time: for more Linux takes larger pages, and may have to look for them first


class File:
    """A descriptor that is closed once nobody reads from it any more."""

    def __init__(self, name: str, folder: int) -> None:
        self.descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "descriptor"):
            close(self.descriptor)


class Segments:
    """The segments in a folder, which is kept open, so that another folder of its name is not used instead.

    Raises:
        OSError: the folder cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: dict[int, File] = {}
        limit, _ = _resource.getrlimit(_resource.RLIMIT_NOFILE)
        self._most = _OPEN if limit < 0 else max(min(limit // _SHARE, _OPEN), 1)  # -1: there is no limit

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "_folder"):
            close(self._folder)

    def read(self, parts: Sequence[tuple[Entry, int, int]], out: Any) -> int:
        """Read parts of entries, from a first one to one behind the last, side by side into a buffer.

        Return the number of entries up to the first that does not match its digests or whose segment cannot be read.
        """
        files = self.files([entry for entry, _, _ in parts])
        opened = [(file.descriptor, *each) for file, each in zip(files, parts, strict=False)]
        return reading.read(opened, memoryview(out)) if opened else 0

    def files(self, entries: Iterable[Entry]) -> list[File]:
        """The files of entries' segments, up to the first that cannot be opened; each is open while referenced."""
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
                with suppress(StopIteration, KeyError, RuntimeError):  # another thread removed one
                    del self._open[next(iter(self._open))]
            self._open[segment] = file
        return file

    def lacks(self, segment: int) -> bool:
        """Whether this process has no descriptors or memory left to open a segment's file."""
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
        """Lock a segment; return a descriptor to write to it, None if another process has the lock.

        Raises:
            OSError: the file cannot be made or opened.
        """
        file = locked(name_of(segment), exclusive=True, folder=self._folder)
        if file is not None and is_new and os.fstat(file).st_size:  # left from a lost table
            os.ftruncate(file, 0)
        return file

    @staticmethod
    def write(file: int, offset: int, content: Any) -> None:
        """Write bytes.

        Raises:
            OSError: the disk is full, or fails.
        """
        view = memoryview(content).cast("B")
        while len(view):
            count = os.pwrite(file, view[:_WRITTEN], offset)
            view, offset = view[count:], offset + count

    def remove(self, taken: Sequence[tuple[int, int]]) -> None:
        """Remove the files of segments whose locks are held; processes that still read them find them too short."""
        for segment, file in taken:
            self.forget(segment)
            with suppress(OSError):
                os.ftruncate(file, 0)
            with suppress(OSError):
                os.unlink(name_of(segment), dir_fd=self._folder)
        release(taken)

    def remove_others(self, known: set[int]) -> None:
        """Remove the files that are no segment's, left by a process that was killed as it took segments back."""
        for name in os.listdir(self._folder):
            if name.isdecimal() and int(name) not in known:
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._folder)


def name_of(segment: int) -> str:
    return f"{segment:08}"


def release(held: Iterable[tuple[int, int]]) -> None:
    """Release segments' locks, even if other processes have copies of the descriptors."""
    for _, file in held:
        if file >= 0:
            unlock(file)
