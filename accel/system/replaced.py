"""Files that were replaced by black pictures (``on_error="replace"``): counted, listed and logged.

The list is a file without a name that this process and the workers it starts append to. Appending is one system call,
so no process waits for another, and a worker's entries outlive it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from multiprocessing import reduction
from typing import Any

from accel.system import counters, log, memory

LISTED = 100
"""The most names that are listed."""

_END = b"\0"

_file: tuple[int, os.stat_result] | None = None  # the list's descriptor, and the status of its file
_unlisted: list[str] = []  # names that this process could not write to the list


def replaced(name: str, reason: str, images: int = 1) -> None:
    """Count, list and log that a file's pixels are replaced by black, in so many images."""
    counters.count(counters.REPLACED, images)
    known = names()
    if len(known) < LISTED and name not in known:
        try:
            os.write(share(), name.encode("utf-8", "surrogatepass") + _END)
        except OSError:
            _unlisted.append(name)
    log.note(log.INFO, "replaced by black: %s: %s", name, reason)
    log.once(
        log.WARNING,
        'accel replaced a broken image by black, and will go on doing so: see accel.stats()["replaced files"]',
    )


def names() -> list[str]:
    """The first files that were replaced in this process and its workers, each once."""
    content = b""
    with suppress(OSError):
        file = share()
        content = os.pread(file, os.fstat(file).st_size, 0)
    listed = [name.decode("utf-8", "surrogatepass") for name in content.split(_END)[:-1]]
    return list(dict.fromkeys(listed + _unlisted))[:LISTED]


def share() -> int:
    """The list's descriptor, made on the first call, which must come before the processes that append to it start.

    Raises:
        OSError: it cannot be made.
    """
    with suppress(OSError):  # other code has closed the descriptor
        if _file is not None and os.path.samestat(os.fstat(_file[0]), _file[1]):
            return _file[0]
    return _adopt(_made())


def _adopt(descriptor: int) -> int:
    global _file
    _file = descriptor, os.fstat(descriptor)
    return descriptor


def _made() -> int:
    try:
        file = memory.anonymous_file(0)
    except (OSError, AttributeError):
        with tempfile.TemporaryFile() as named:
            file = os.dup(named.fileno())
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


def sent() -> Any:
    """The argument of ``join`` in a process that is being started; None if there is no list."""
    try:
        return reduction.DupFd(share())
    except OSError:
        return None


def join(sent: Any) -> None:
    """Append to the list of the process that started this one; None: it has none."""
    if sent is not None:
        _adopt(sent.detach())


counters.show("replaced files", names)
