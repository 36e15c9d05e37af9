"""Memory that the ranks of one launcher (torchrun, Lightning, srun) share on a machine: a file without a name.

The rank that comes first has it, and listens at a socket whose name is in no file system; the others learn from the
socket which process that is, and open its file in ``/proc``. So nothing is left when they end, however they do.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress

from accel.system import cores, fork, memory

_NAME = "accel-ranks"
_ATTEMPTS = 100  # of 10 ms: a socket has a name just before it listens
_listening: list[socket.socket] = []


def _leave_to_parent() -> None:
    for each in _listening:
        each.close()


fork.register(in_child=_leave_to_parent)  # a worker may outlive the rank whose file is asked for


def shared_file(size: int) -> int:
    """The descriptor of the ranks' file, made with this size if there is none yet.

    A process that is no rank, or cannot share, has one of its own, of this size divided by the number of ranks.

    Raises:
        OSError, AttributeError: this system has no such files.
    """
    found = None
    if {"LOCAL_RANK", "SLURM_LOCALID"} & os.environ.keys():
        found = _opened(os.getppid(), f"{_NAME}-{os.getppid()}")  # Lightning's launcher is a rank itself
        found = _met(size, f"{_NAME}-of-{os.getppid()}") if found is None else found
    # its name has its process, as a forked rank has its parent's file as well
    return memory.anonymous_file(size // cores.ranks(), f"{_NAME}-{os.getpid()}") if found is None else found


def _met(size: int, name: str) -> int | None:
    """The file of the rank that comes first, perhaps this one; None: they cannot share."""
    own, found = memory.anonymous_file(size, name), None
    address = f"\0{_NAME}-{os.getuid()}-{os.getppid()}"
    with suppress(OSError):
        for _ in range(_ATTEMPTS):
            meeting = socket.socket(socket.AF_UNIX)
            try:
                meeting.bind(address)
                meeting.listen(socket.SOMAXCONN)
                _listening.append(meeting)
                return own
            except OSError:  # another rank has the name
                with meeting, suppress(ConnectionRefusedError):
                    meeting.setblocking(False)
                    meeting.connect(address)
                    peer = meeting.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                    process, user, _ = struct.unpack("3i", peer)
                    found = _opened(process, name) if user == os.getuid() else None
                    break
            time.sleep(0.01)
    os.close(own)
    return found


def _opened(process: int, file: str) -> int | None:
    """Open a file by its name that another process has; None: it has none, or has ended, or is not this user's."""
    with suppress(OSError):
        for name in os.listdir(folder := f"/proc/{process}/fd"):
            with suppress(FileNotFoundError):
                if os.readlink(f"{folder}/{name}") == f"/memfd:{file} (deleted)":
                    return os.open(f"{folder}/{name}", os.O_RDWR)
    return None
