"""A pack that lies elsewhere: its shards are fetched into a local folder when they are first needed, whole.

Processes and ranks that share the folder fetch each shard once: whoever has the lock of a shard writes it under another
name, compares it with the index, digests included, and renames it. If the shards here may not take more than ``bound``
bytes, those that were not read for longest are removed, which asks for an order that reads a shard's files together.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from accel.codec.files import pack_index, packs
from accel.codec.files.pack_index import FOLDER, NAME, file_of, origin_of
from accel.errors import PackError
from accel.packs.writing import is_indexed, read_back
from accel.system import fork
from accel.system.file_locks import fcntl, locked, unlock
from accel.system.imports import LazyModule

_fsspec: Any = LazyModule("fsspec")
_locks = set[int]()  # the descriptors of those that this process holds or waits for


def _close_locks() -> None:
    """In a child: a copy of a descriptor would keep the lock, for which the child may come to wait itself."""
    while _locks:
        os.close(_locks.pop())


fork.register(in_child=_close_locks)


class Remote:
    """Where a pack lies, and the local folder into which its shards are fetched.

    Args:
        url: the pack's folder, as fsspec names it. folder: a local one that is new or empty, or was given for this url.
        bound: the bytes that shards may take in ``folder``, which all of its users must give alike; None for no bound.
        options: fsspec's storage options.

    Raises:
        PackError: there is no pack, or one that cannot be used; the folder has something else; the bound is smaller
            than a shard.
    """

    def __init__(self, url: str, folder: str, bound: int | None, options: dict[str, Any]) -> None:
        self.url, self.folder, self._options = url, os.path.abspath(os.path.expanduser(folder)), options
        try:
            self._prepare()
        except PackError:
            raise
        except OSError as error:
            raise PackError(f"{self.folder}: the folder cannot be used for a remote pack: {error}") from error
        pack = self.attach()
        sizes = pack.index.sizes
        self.is_bounded = bound is not None and bound < sum(sizes)
        self._bound = bound if bound is not None and self.is_bounded else sum(sizes)
        if self._bound < max(sizes, default=0):
            raise PackError(f"{url}: bound={bound} is too small: a shard has {max(sizes)} bytes")

    def attach(self) -> packs.Pack:
        """Have this process fetch the shards of the pack in the folder when they are needed; return the pack."""
        pack = packs.of(self.folder)
        if pack is None:
            raise PackError(f"{self.folder}: there is no pack in this folder")
        pack.remote = self
        return pack

    def opened(self, pack: packs.Pack, shard: int) -> int:
        """A descriptor of a shard, which is fetched if it is not here.

        Raises:
            PackError: it cannot be fetched, or is not the one that the index describes.
        """
        name = pack.index.shards[shard]
        path = os.path.join(self.folder, name)
        partial = f"{path}.partial"
        with suppress(FileNotFoundError):
            return self._open(path)
        with self._locked(name):
            with suppress(FileNotFoundError):
                return self._open(path)
            with _removed_on_error(partial):
                with self._locked("room"):
                    self._make_room(pack, name, pack.index.sizes[shard])
                self._fetch(name, partial)
                found = read_back(partial)
                if isinstance(found, str) or not is_indexed(shard, found, pack.index):
                    why = f": {found}" if isinstance(found, str) else "; has the pack changed? Then give another folder"
                    raise PackError(f"{self.url}: {name} is not the shard that {file_of(self.folder)} describes{why}")
                with open(partial, "rb") as file:
                    os.fsync(file.fileno())
                with self._locked("room"):  # so that nobody removes it before it is open, or counts it twice
                    os.rename(partial, path)
                    return self._open(path)

    def _open(self, path: str) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if self.is_bounded:  # noted by us, since few disks note every read
            with suppress(PermissionError):  # of another user's file
                os.utime(descriptor, ns=(time.time_ns(), os.fstat(descriptor).st_mtime_ns))
        return descriptor

    def _prepare(self) -> None:
        """Fetch the index, unless it is here, and compare where it came from."""
        index, origin = file_of(self.folder), origin_of(self.folder)
        url = hashlib.blake2b(self.url.rstrip("/").encode()).hexdigest()  # which may have a password
        if not os.path.exists(index):
            os.makedirs(os.path.dirname(index), exist_ok=True)
            with self._locked("room"):
                if not os.path.exists(index):
                    self._fetch_index(index, origin, url)
        if not os.path.exists(origin):
            raise PackError(f"{self.folder}: the folder has a whole pack, which is not fetched: leave out the url")
        with open(origin) as known:
            if known.read() != url:
                raise PackError(f"{self.folder}: the folder is of another url: remove it, or give another one")

    def _fetch_index(self, index: str, origin: str, url: str) -> None:
        if set(os.listdir(self.folder)) - {FOLDER}:
            raise PackError(f"{self.folder}: the folder is not empty, and has no part of a pack")
        partial = f"{index}.partial"
        with _removed_on_error(partial):
            self._fetch(f"{FOLDER}/{NAME}", partial)
            try:
                pack_index.read_file(partial)
            except PackError as error:
                raise PackError(f"{self.url}: {error}") from error
            with open(origin, "w") as out:
                out.write(url)
            os.rename(partial, index)

    def _fetch(self, name: str, file: str) -> None:
        try:
            system, root = _fsspec.core.url_to_fs(self.url, **self._options)
            system.get_file(f"{root.rstrip('/')}/{name}", file)
        except Exception as error:  # of any file system
            raise PackError(f"{self.url}: {name} cannot be fetched: {error or type(error).__name__}") from error

    def _make_room(self, pack: packs.Pack, wanted: str, size: int) -> None:
        """Remove the shards that were not read for longest until another one fits, and take the room for it."""
        whole, used = list[tuple[int, int, str]](), size
        for name, its_size in zip(pack.index.shards, pack.index.sizes, strict=True):
            path = os.path.join(self.folder, name)
            with suppress(FileNotFoundError):
                whole.append((os.stat(path).st_atime_ns, its_size, path))
                used += its_size
            if name != wanted and os.path.exists(f"{path}.partial"):
                lock = locked(self._lock_of(name), exclusive=True)
                if lock is None:  # somebody fetches it
                    used += its_size
                else:  # it is left of a process that was killed
                    os.remove(f"{path}.partial")
                    unlock(lock)
        for _, its_size, path in sorted(whole):
            if used > self._bound:
                os.remove(path)
                used -= its_size
        with open(os.path.join(self.folder, f"{wanted}.partial"), "wb"):
            pass

    def _lock_of(self, name: str) -> str:
        return os.path.join(self.folder, FOLDER, f"{name}.lock")

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        descriptor = os.open(self._lock_of(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        _locks.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            if descriptor in _locks:  # not in a child that was forked meanwhile
                _locks.remove(descriptor)
                unlock(descriptor)


@contextmanager
def _removed_on_error(file: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            os.remove(file)
        raise
