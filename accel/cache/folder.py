"""The folder of a cache: its place, its permissions (the user's alone), and the file system that it lies on."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accel.codec import store
from accel.system import log
from accel.system.file_locks import fcntl, locked

TABLE, SEGMENTS, IN_USE, OPENING, DAMAGED = "table.sqlite", "segments", "in-use", "opening", "damaged"
"""The names of the files in it."""

SHARED_MEMORY = Path("/dev/shm")

_MINE = {SEGMENTS, IN_USE, OPENING, DAMAGED, *(f"{TABLE}{end}" for end in ("", "-wal", "-shm", "-journal"))}
_MINE.add("lost+found")  # a file system's own
_NETWORK = (
    "9p|afs|beegfs|ceph|cifs|coda|fuse.sshfs|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs|nfs4|ocfs2|orangefs|panfs|pvfs2|smb3"
    "|smbfs|vboxsf|virtiofs|wekafs"
)
_PATIENCE = 10.0  # seconds for which another process may be opening it


class Unusable(Exception):
    """The folder cannot be used as a cache; the message says why."""


def in_memory() -> Path:
    """The user's folder in shared memory, which lasts until the machine restarts; a temporary one if there is none."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    return parent / f"accel-cache-{user}"


def limited(folder: Path, size: int) -> int:
    """The budget of the folder in memory: ``size`` bytes, but at most 3/4 of what it already has and what is free."""
    parent = folder.parent
    there = os.statvfs(parent)
    own = size_of(folder)
    left = [own + there.f_bavail * there.f_frsize]
    if parent == SHARED_MEMORY and (memory := store.left()) is not None:
        left.append(own + memory)
    if size > (most := min(left) // 4 * 3):
        log.once(log.WARNING, "the cache takes %.3g MB, not %.3g: %s has no more", most / 1e6, size / 1e6, str(parent))
    return min(size, most)


def prepared(folder: Path) -> bool:
    """Make the folder for this user alone if there is none; return whether it can be written to.

    Raises:
        Unusable: its parent does not exist, it belongs to another user, others may enter it, it has other files, or is
            on a network file system.
    """
    try:
        fcntl.flock  # noqa: B018  whether there is one
    except ImportError as error:
        raise Unusable("this system has no locks of whole files") from error
    try:
        if (kind := _network(folder)) is not None:
            raise Unusable(f"a folder on a network ({kind}) has no locks that can be trusted: {folder}")
        if not folder.parent.exists():
            raise Unusable(f"there is no {folder.parent} to make it in (is a disk not mounted?): {folder}")
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise Unusable(f"not a folder of this user's: {folder}")
        names = set(os.listdir(folder))
        if others := names - _MINE or _unopened(folder):
            raise Unusable(f"the folder has other things in it, such as {min(others)}: {folder}")
        if found.st_mode & 0o077:
            if names:
                raise Unusable(f"others may enter it (chmod 700): {folder}")
            folder.chmod(0o700)
        if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_RDONLY:
            return False
        (folder / SEGMENTS).mkdir(mode=0o700, exist_ok=True)
        return True
    except OSError as error:
        raise Unusable(f"{error.strerror}: {error.filename or folder}") from error


def _unopened(folder: Path) -> set[str]:
    """The files that are named as a cache's but are none: a cache has its ``OPENING`` file before these."""
    found = {str(path.relative_to(folder)) for path in (*folder.glob(TABLE), *folder.glob(f"{SEGMENTS}/*"))}
    return set() if (folder / OPENING).exists() else found


def exists(folder: Path) -> bool:
    """Whether there is a cache, possibly empty."""
    return (folder / SEGMENTS).is_dir() and (folder / OPENING).exists()


def _network(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The type of the folder's file system if that is a network's; None if it is not, or unknown."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    at, longest, kind = str(folder.absolute().resolve()) + "/", -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].encode().decode("unicode_escape").rstrip("/") + "/"
        if at.startswith(point) and len(point) >= longest:  # a later mount hides an earlier one at the same place
            longest, kind = len(point), after.split(" ")[0]
    return kind if kind in _NETWORK.split("|") else None


@contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Keep other processes from opening the cache meanwhile.

    Raises:
        Unusable: another process has been opening it for too long.
    """
    descriptor = locked(folder / OPENING, exclusive=True, patience=_PATIENCE)
    if descriptor is None:
        raise Unusable(f"another process has been opening it for {_PATIENCE:.0f} seconds: {folder}")
    try:
        yield
    finally:
        os.close(descriptor)


def empty(folder: Path) -> None:
    """Remove all files of a cache that nobody uses.

    Raises:
        OSError: something cannot be removed.
    """
    for path in (*folder.glob(f"{TABLE}*"), *folder.glob(f"{SEGMENTS}/[0-9]*"), folder / DAMAGED):
        with suppress(FileNotFoundError):
            path.unlink()


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # removed since it was listed
            size += path.stat().st_size if path.is_file() else 0
    return size
