"""A list of short texts that this process and those it starts append to: a file without a name.

Appending is one system call, so no process waits for another, and a worker's entries outlive it. This file imports no
torch, as ``python -m accel run`` must not.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from multiprocessing import reduction
from typing import Any

_END = b"\0"

_file: tuple[int, os.stat_result] | None = None  # the list's descriptor, and the status of its file


def append(text: str) -> None:
    """Append a text without a zero in it.

    Raises:
        OSError: there is no list, or no room.
    """
    os.write(share(), text.encode("utf-8", "surrogatepass") + _END)


def entries(prefix: str) -> list[str]:
    """What follows the prefix in the texts that begin with it, in order; nothing if there is no list."""
    content = b""
    with suppress(OSError):
        file = share()
        content = os.pread(file, os.fstat(file).st_size, 0)
    texts = [text.decode("utf-8", "surrogatepass") for text in content.split(_END)[:-1]]
    return [text.removeprefix(prefix) for text in texts if text.startswith(prefix)]


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
        file = os.memfd_create("accel")
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
