"""Large files of which the header has been read, and the rest is when it is needed: as Pillow's images are opened.

The file stays open until then. It is read by its descriptor, whose position nobody shares with a fork or a thread.
"""

from __future__ import annotations

import io
import os
import stat
from typing import Any

from accel.sources.header import Header, claim
from accel.system import fork

_HEADS = 1 << 13, 1 << 16
_LARGE = 1 << 18


class Unread:
    """A file to be read: ``head`` is its beginning, ``header`` what that says, as far as it knows."""

    def __init__(self, file: Any, head: bytes, header: Header) -> None:
        self.file = file
        self.head = head
        self.header = header
        self.exclusive = False  # it was opened for this image
        self.lock = fork.Lock()

    def read(self) -> bytes:
        """All of it.

        Raises:
            ValueError: it was closed meanwhile, as Pillow has it.
        """
        if self.file.closed:
            raise ValueError("Operation on closed image")
        descriptor = self.file.fileno()
        parts: list[bytes] = []
        size = 0
        while part := os.pread(descriptor, max(os.fstat(descriptor).st_size - size, 1), size):
            parts.append(part)
            size += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close the file, if that is the image's affair."""
        if self.exclusive:
            self.file.close()


def begun(file: Any) -> Unread | None:
    """A large file on a disk whose header can be told from its beginning; None for all else, which is to be read."""
    if type(file) is not io.BufferedReader or type(file.raw) is not io.FileIO or not hasattr(os, "pread"):
        return None
    descriptor = file.fileno()
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size <= _LARGE:
        return None
    for size in _HEADS:
        head = os.pread(descriptor, size, 0)
        header = claim(head)
        if header is not None:
            return None if header.pictures else Unread(file, head, header)
    return None
