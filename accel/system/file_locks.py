"""Locks of whole files, by which processes take turns."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from accel.system.imports import LazyModule

fcntl: Any = LazyModule("fcntl")  # which not every system has


def locked(file: Path | str, *, exclusive: bool, patience: float = 0.0, folder: int | None = None) -> int | None:
    """Lock a file; return a descriptor that holds the lock until all its copies are closed, None if others have it.

    ``patience``: seconds to wait for it. ``folder``: the descriptor of the folder that ``file`` is relative to.

    Raises:
        OSError: the file cannot be opened.
    """
    flags = os.O_CREAT | (os.O_RDWR if exclusive else os.O_RDONLY)
    descriptor = os.open(file, flags, 0o600, dir_fd=folder)
    until = monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if monotonic() >= until:
                os.close(descriptor)
                return None
        sleep(0.01)


def unlock(descriptor: int) -> None:
    """Release a lock, even if other processes have copies of the descriptor, and close it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
