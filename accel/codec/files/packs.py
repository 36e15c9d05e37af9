"""Packs in use: which paths are those of files in a pack, and where in its shards their contents lie.

A path below a pack's folder that its index has is a *member*: it is read by one ``pread`` from a shard that stays open.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EMFILE
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.codec.files import pack_index
from accel.codec.files.pack_index import ForeignIndex
from accel.errors import PackError
from accel.system import fork
from accel.system.memory import Key, key_of

_BLOCK = tarfile.BLOCKSIZE
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe is not waited for
_DEVICE_BITS = 32  # of a key's device; the offset in a shard is put above them


class Content(NamedTuple):
    """Where a member lies: the descriptor of its open shard, its offset there, and its size, in bytes."""

    descriptor: int
    offset: int
    size: int


class Pack:
    """A pack: what its index says, and its shards, each opened at first use and open as long as the pack is known.

    Attributes:
        root: the pack's folder, absolute. status: of the index, as it was read. index: what it says.
        descriptors: of the shards that are open; -1 for others.
        remote: what fetches shards that are not here (``accel.packs.remote.Remote``), if the pack lies elsewhere.
    """

    remote: Any = None

    def __init__(self, root: str) -> None:
        """Raises ``PackError``, as ``pack_index.read`` does."""
        self.root = os.path.abspath(root)
        self.status = _status(root)
        self.index = pack_index.read(root)
        self._class = {name: label for label, name in enumerate(self.index.classes)}
        self._numbers: dict[str, dict[str, int]] = {}  # by class and path: the files of classes that were asked for
        self.descriptors = [-1] * len(self.index.shards)
        self._intact: dict[int, tuple[int, ...]] = {}  # by shard: the file that was compared with the index
        self._lock = fork.Lock()

    def paths_in(self, folder: str) -> list[str]:
        """The paths, below the pack's folder, of the files in one of its folders and those below it."""
        name, _, below = folder.partition("/")
        label = self._class.get(name)
        if label is None:
            return []
        begin, end = self.index.begins[label : label + 2]
        prefix, within = f"{name}/", f"{below}/" if below else ""
        return [prefix + path for path in self.index.paths[begin:end] if path.startswith(within)]

    def number(self, path: str) -> int | None:
        """The number of a file by its path below the pack's folder; None if there is none."""
        name, _, below = path.partition("/")
        if name not in self._numbers:
            if (label := self._class.get(name)) is None:
                return None
            begin, end = self.index.begins[label : label + 2]
            self._numbers[name] = dict(zip(self.index.paths[begin:end], range(begin, end), strict=True))
        return self._numbers[name].get(below)

    @property
    def is_bounded(self) -> bool:
        """Whether shards are here only for a while."""
        return self.remote is not None and self.remote.is_bounded

    def is_readable(self) -> bool:
        """Whether any file can be read at any time: a folder for a remote pack may have some of its shards only."""
        if self.remote is not None:
            return not self.is_bounded
        whole = all(os.path.exists(os.path.join(self.root, name)) for name in self.index.shards)
        return whole or not os.path.exists(pack_index.origin_of(self.root))

    def content(self, number: int) -> Content:
        """Where a file's content lies.

        Raises:
            PackError: its shard cannot be opened, or is not the one that the index describes.
        """
        if self.is_bounded:
            raise PackError(f"{self.root}: of a remote pack with a bound only accel.PackDataset reads files")
        shard, offset, size = self.index.places[number].tolist()
        descriptor = self.descriptors[shard]
        return Content(self._kept(shard) if descriptor < 0 else descriptor, offset, size)

    @contextmanager
    def borrowed(self, number: int) -> Iterator[Content]:
        """``content`` for a moment: a shard that others may remove does not stay open."""
        if not self.is_bounded:
            yield self.content(number)
            return
        shard, offset, size = self.index.places[number].tolist()
        descriptor = self._opened(shard)
        try:
            yield Content(descriptor, offset, size)
        finally:
            os.close(descriptor)

    def _kept(self, shard: int) -> int:
        with self._lock:
            if self.descriptors[shard] < 0:
                self.descriptors[shard] = self._opened(shard)
            return self.descriptors[shard]

    def _opened(self, shard: int) -> int:
        path = os.path.join(self.root, self.index.shards[shard])
        try:
            descriptor = os.open(path, _FLAGS) if self.remote is None else self.remote.opened(self, shard)
        except PackError:
            raise
        except OSError as error:
            remedy = "; raise the limit (ulimit -n), or pack into larger shards" * (error.errno == EMFILE)
            raise PackError(f"{path}: the shard cannot be opened: {error.strerror}{remedy}") from error
        if fault := self._fault(shard, descriptor):
            os.close(descriptor)
            raise PackError(f"{path}: this is not the shard that the pack's index describes: {fault}")
        return descriptor

    def _fault(self, shard: int, descriptor: int) -> str:
        """In what a shard differs from what the index says of it, as far as its size and a few headers tell."""
        found, size = os.fstat(descriptor), self.index.sizes[shard]
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            return f"it has {found.st_size} bytes in place of {size}"
        if self._intact.get(shard) == (status := (found.st_dev, found.st_ino, found.st_mtime_ns)):
            return ""
        own = np.flatnonzero(self.index.places[:, 0] == shard)
        for number in own[[0, len(own) // 2, -1]].tolist() if len(own) else ():
            _, offset, length = self.index.places[number].tolist()
            try:
                header = tarfile.TarInfo.frombuf(
                    os.pread(descriptor, _BLOCK, max(offset - _BLOCK, 0)), "utf-8", "strict"
                )
            except (tarfile.HeaderError, UnicodeError):
                return f"no file begins at byte {offset}"
            if header.size != length:
                return f"the file at byte {offset} has {header.size} bytes in place of {length}"
            if not header.name.startswith(f"{number:09}."):
                return f"the file at byte {offset} is {header.name!r}, not number {number}"
        self._intact[shard] = status
        return ""


known: dict[str, tuple[str | None, Pack]] = {}
"""The packs that this process knows, by their folders' names as they were spelled, each ending with a separator: the
working directory, if the name is relative, and the pack."""


def of(root: Any) -> Pack | None:
    """The pack in a folder; None if there is none.

    Raises:
        PackError: its index cannot be used.
    """
    try:
        folder = os.fsdecode(os.path.expanduser(root))
        status = _status(folder)
    except (OSError, TypeError, ValueError):
        return None
    prefix, where = os.path.join(folder, ""), None if os.path.isabs(folder) else os.getcwd()
    before = known.get(prefix)
    if before is not None and before[0] == where and before[1].status == status:
        return before[1]
    absolute = os.path.abspath(folder)
    same = [pack for _, pack in known.values() if pack.root == absolute and pack.status == status]
    try:
        pack = same[0] if same else Pack(folder)
    except ForeignIndex:
        return None
    known[prefix] = where, pack
    return pack


def _status(root: str) -> tuple[int, ...]:
    """What changes if another index takes the place of a pack's."""
    found = os.stat(pack_index.file_of(root))
    if not stat.S_ISREG(found.st_mode):
        raise FileNotFoundError
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def find(path: Any) -> bool:
    """Look for a pack, not known yet, among the folders above a path; whether one was found that has the path.

    So a process finds packs that another one was given. To be called only where opening the path has failed.

    Raises:
        PackError: there is one, whose index cannot be used.
    """
    try:
        folder = os.path.dirname(name := os.fsdecode(path))
    except TypeError:
        return False
    while folder not in ("", os.sep):
        if (pack := of(folder)) is not None:
            return pack.number(name[len(os.path.join(folder, "")) :]) is not None
        folder = os.path.dirname(folder)
    return False


def content_of(path: Any) -> Content | None:
    """Where the content of a member lies; None for other paths.

    Raises:
        PackError: its shard cannot be used.
    """
    member = _member(path)
    return None if member is None else member[0].content(member[1])


def _member(path: Any) -> tuple[Pack, int] | None:
    """The pack that a path is in, and the number of its file."""
    try:
        name = os.fsdecode(path)
    except TypeError:
        return None
    for prefix, (where, pack) in [*known.items()]:
        number = pack.number(name[len(prefix) :]) if name.startswith(prefix) else None
        if number is not None and (where is None or where == os.getcwd()):
            return pack, number
    return None


def contents_of(paths: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """``content_of`` many paths: int64 [paths, 3], the descriptor -1 for those that are not members; None if no path
    is, or a shard cannot be used."""
    try:
        found = [content_of(path) or _NONE for path in paths]
    except PackError:  # reading that path by itself will raise it
        return None
    return None if all(each is _NONE for each in found) else np.array(found, np.int64)


_NONE = Content(-1, 0, 0)


def key_of_member(content: Content) -> Key | None:
    """The key of a member: that of its shard, with its size, and with its offset in place; None if it has none.

    The offset is added to the device, which no other file has then.
    """
    key, (block, rest) = key_of(os.fstat(content.descriptor)), divmod(content.offset, _BLOCK)
    if key is None or rest or key[0] >> _DEVICE_BITS or content.offset >> 40:
        return None
    return (key[0] | (block + 1) << _DEVICE_BITS, key[1], content.size, *key[3:])


def read(path: Any) -> bytes | None:
    """The content of a member; None for other paths.

    Raises:
        PackError: it cannot be read.
    """
    member = _member(path) if known else None
    if member is None:
        return None
    with member[0].borrowed(member[1]) as content:
        try:
            descriptor, offset, size = content
            data = os.pread(descriptor, size, offset)
            while 0 < len(data) < size and (more := os.pread(descriptor, size - len(data), offset + len(data))):
                data += more
        except OSError as error:
            raise PackError(f"{path}: the file's shard cannot be read: {error.strerror}") from error
    if len(data) != content.size:
        raise PackError(f"{path}: the file's shard was cut: it ends {content.size - len(data)} bytes too early")
    return data


class MemberFile(io.BytesIO):
    """An open member, as ``open(path, "rb")`` would return it.

    Attributes:
        name: its path.
    """

    def __init__(self, data: bytes, path: Any) -> None:
        super().__init__(data)
        self.name = path

    def __repr__(self) -> str:
        return repr(os.fspath(self.name))  # which Pillow's errors show


def opened(path: Any) -> MemberFile | None:
    """An open member; None for a path that is not one. Looks for packs that are not known yet.

    Raises:
        PackError: it cannot be read.
    """
    data = read(path)
    if data is None and not os.path.lexists(path) and find(path):
        data = read(path)
    return None if data is None else MemberFile(data, path)
