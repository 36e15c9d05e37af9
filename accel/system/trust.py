"""Folders that only this user and root may write to: compiled code is loaded from no others.

All that takes part in finding a folder is checked, from the root on: a folder whose parents are sound cannot be
exchanged by others meanwhile, nor a link in it.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from accel.system import log

_NOBODY = 65534  # shown as the owner of what belongs to a user that a namespace has no number for
_ALL = ["0", "0", "4294967295"]  # a namespace that has all users
_MOST_LINKS = 40


class Untrusted(PermissionError):
    """Another user may write to a file or a folder, or has made it; the message says which and who."""


def opened(path: Path, *, private: bool = False) -> int | None:
    """Open a folder to which no other user but root may write; None on Windows, where modes do not say who may.

    ``private``: it must be this user's, and no other may read it either.

    Raises:
        Untrusted: its owner, or that of a link or a parent, is another user; or everybody may write to it, or a group
            other than this user's own, or to a parent without the sticky bit.
        OSError: it cannot be opened.
    """
    if not hasattr(os, "geteuid"):
        log.once(log.INFO, "who may write to %s is not known: this system has no owners and modes", str(path))
        return None
    real = _real(path.absolute())
    folder = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(folder)
        check(found, real)
        if private and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
            raise Untrusted(f"{real} is not this user's alone")
    except BaseException:
        os.close(folder)
        raise
    return folder


def check(found: os.stat_result, path: Path, *, is_parent: bool = False) -> None:
    """Check the status of a file, link or folder.

    Raises:
        Untrusted: another user owns it or may write to it.
    """
    if found.st_uid not in (os.geteuid(), 0) and not _means_nothing(found, path):
        raise Untrusted(f"the owner of {path} is another user ({found.st_uid})")
    if stat.S_ISLNK(found.st_mode) or (is_parent and found.st_mode & stat.S_ISVTX):
        return  # in a sticky folder nobody can exchange what others own
    if found.st_mode & stat.S_IWOTH:
        raise Untrusted(f"{path} is writable by everybody")
    if found.st_mode & stat.S_IWGRP and (found.st_gid != os.getegid() or _lists_others(path)):
        raise Untrusted(f"{path} is writable by a group ({found.st_gid})")


def _real(path: Path) -> Path:
    """Resolve an absolute path, checking each folder and link on the way to the last one."""
    at, ahead, links = Path(path.anchor), [*reversed(path.parts[1:])], 0
    check(os.lstat(at), at, is_parent=True)
    while ahead:
        name = ahead.pop()
        step = at.parent if name == ".." else at / name
        found = os.lstat(step)
        if stat.S_ISLNK(found.st_mode):
            check(found, step)
            if (links := links + 1) > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = Path(os.readlink(step))
            at = Path(target.anchor) if target.is_absolute() else at
            ahead += reversed(target.parts[target.is_absolute() :])
        else:
            at = step
            if ahead:
                check(found, at, is_parent=True)
    return at


def _means_nothing(found: os.stat_result, path: Path) -> bool:
    """Whether an owner does not tell whose a file is, which is logged: this user's new files there have the same one,
    as on a network file system that squashes users, or this process's namespace has no number for the user."""
    unknown = found.st_uid == _NOBODY and _namespace() != _ALL
    with suppress(OSError), tempfile.TemporaryFile(dir=path if stat.S_ISDIR(found.st_mode) else path.parent) as own:
        unknown = unknown or os.fstat(own.fileno()).st_uid == found.st_uid
    if unknown:
        text = "owners of files mean nothing here (user %d): nobody can tell who may write to compiled kernels"
        log.once(log.WARNING, text, found.st_uid)
    return unknown


def _namespace() -> list[str]:
    """The users of this process's namespace, as Linux shows them."""
    try:
        return Path("/proc/self/uid_map").read_text().split()
    except OSError:
        return _ALL


def _lists_others(path: Path) -> bool:
    """Whether an access control list names more users than the mode does."""
    with suppress(OSError, AttributeError):
        return bool(os.getxattr(path, "system.posix_acl_access"))
    return False
