"""Keys of files: what tells, without a look at its content, whether a file is the one that was read before."""

from __future__ import annotations

import os
import time

Key = tuple[int, int, int, int, int]
"""Device, inode, size in bytes, and the times of the last write and of the last change of anything, in nanoseconds."""

SETTLED = 2.0
"""Seconds after which a file's times tell of every change: some clocks count seconds, and some only even ones."""


def key_of(status: os.stat_result) -> Key | None:
    """The key of an open file by its status, to be asked for before it is read.

    None where the times cannot be trusted: they are not ``SETTLED``, lie ahead, or are those of a file system whose
    third time is that of the file's making.
    """
    written, changed = status.st_mtime_ns, status.st_ctime_ns
    if 0 <= written <= changed <= (time.time() - SETTLED) * 1e9:
        return status.st_dev, status.st_ino, status.st_size, written, changed
    return None
