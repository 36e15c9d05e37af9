"""Files that black pictures took the place of (``on_error="replace"``): counted, listed and logged.

The list is a file without a name that this process and the workers it starts append to. Appending is one call of the
system's, so nobody waits for anybody, and what a worker has listed outlives it.
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
"""The most names that are kept."""

_END = b"\0"

_file: tuple[int, os.stat_result] | None = None  # a descriptor, and which file it was made for
_unlisted: list[str] = []  # by this process, where there is no such file


def replaced(name: str, reason: str, images: int = 1) -> None:
    """Say that black takes the place of a file's pixels, in so many images."""
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
    """The list's descriptor; made if there is none yet, which must be before the processes start that append to it.

    Raises:
        OSError: it cannot be made.
    """
    with suppress(OSError):  # somebody has closed what was not theirs
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
    """The argument of ``join`` in a process that is being started; None where there is no list."""
    try:
        return reduction.DupFd(share())
    except OSError:
        return None


def join(sent: Any) -> None:
    """List in the file of the process that started this one."""
    if sent is not None:
        _adopt(sent.detach())


counters.show("replaced files", names)
