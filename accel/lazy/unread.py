"""Files that are being opened: small ones are read, of large ones the header, and the rest when it is needed.

As with Pillow's images, the file stays open until then. It is read by its descriptor, whose position nobody
shares with a fork or a thread.
"""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass, field
from typing import IO, Any

from accel.codec.header import Header, claim
from accel.system import fork

_HEADS = 1 << 13, 1 << 16
_LARGE = 1 << 18


@dataclass(eq=False)
class Unread:
    """A file to be read: ``head`` is its beginning, ``header`` what that says, as far as it knows."""

    file: Any
    head: bytes
    header: Header
    exclusive: bool = False  # it was opened for this image
    lock: fork.Lock = field(default_factory=fork.Lock)

    def read(self) -> bytes:
        """Read all of it.

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


def opened(file: IO[bytes]) -> bytes | Unread:
    """Read a file; of a large one on a disk only the beginning, if that has the header."""
    if type(file) is io.BufferedReader and type(file.raw) is io.FileIO and _HAS_PREAD:
        descriptor = file.fileno()
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            begun = _small(descriptor, status.st_size) if status.st_size <= _LARGE else _large(file, descriptor)
            if begun is not None:
                return begun
    try:
        return file.read()
    except TypeError:  # it wants a size, which Pillow always gives it
        return b"".join(iter(lambda: file.read(_PIECE), b""))


_HAS_PREAD = hasattr(os, "pread")
_PIECE = 1 << 20


def _small(descriptor: int, size: int) -> bytes | None:
    content = os.pread(descriptor, size + 1, 0)
    return content if len(content) == size else None


def _large(file: Any, descriptor: int) -> Unread | None:
    for size in _HEADS:
        head = os.pread(descriptor, size, 0)
        header = claim(head)
        if header is not None:
            return None if header.pictures else Unread(file, head, header)
    return None
