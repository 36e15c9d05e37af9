"""The index of a pack: one SQLite file that says in which shard, where, each of its files lies.

A *pack* is a folder with the files of an ``ImageFolder`` tree in tar *shards* (WebDataset's layout) and this index in
``.nv-meta/``. The tables ``samples`` and ``sample_parts`` are those of Megatron-Energon's index, which reads a pack as
it is; accel reads only the tables of its own. An index may come from strangers: it is refused unless it consists of
the ordinary tables below, and everything in it is checked before it is used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from accel.errors import AccelError
from accel.system.imports import LazyModule

sqlite3: Any = LazyModule("sqlite3")

FOLDER, NAME = ".nv-meta", "index.sqlite"
FORMAT = "1"

MADE = (
    "CREATE TABLE accel_pack (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE accel_classes (class INTEGER PRIMARY KEY, name BLOB NOT NULL)",
    "CREATE TABLE accel_shards (tar_file_id INTEGER PRIMARY KEY, name TEXT NOT NULL, size INTEGER NOT NULL)",
    "CREATE TABLE accel_files (file INTEGER PRIMARY KEY, tar_file_id INTEGER NOT NULL, offset INTEGER NOT NULL,"
    " size INTEGER NOT NULL, class INTEGER NOT NULL, path BLOB NOT NULL, digest BLOB NOT NULL)",
)
"""The tables of accel's own.

``accel_pack``: ``format`` (``FORMAT``) and ``files`` (their number). ``accel_classes``: the names of the class folders,
numbered from 0 in ImageFolder's order. ``accel_shards``: file names in the pack's folder, and their bytes.
``accel_files``: the files, numbered from 0 in ImageFolder's order: where the content lies, the class, the path below
the pack's folder (``class/name``) and the BLAKE2b digest (16 bytes) of the content. Paths and names of classes are the
system's bytes (``os.fsencode``).
"""

_ABOUT = "SELECT value FROM accel_pack WHERE name = ?"
_CLASSES = "SELECT class, name FROM accel_classes ORDER BY class"
_SHARDS = "SELECT tar_file_id, name, size FROM accel_shards ORDER BY tar_file_id"
_FILES = "SELECT file, tar_file_id, offset, size, class, path FROM accel_files ORDER BY file"
_STEPS = 1 << 16  # of SQLite's machine, between two looks at how many there were
_LARGEST_SHARD = 1 << 40  # bytes; keys of files (``packs``) have no room for larger offsets


class PackError(AccelError, OSError):
    """Error of a pack that is damaged or cannot be used; the message names the file and the reason."""


class Index(NamedTuple):
    """What an index says, checked.

    Attributes:
        classes: the names of the class folders, in their order. shards: names of files in the pack's folder.
        shard_sizes: int64 [shards]. paths: of all files, below the pack's folder, in ImageFolder's order.
        places: int64 [files, 3], each file's shard, offset and size in it.
        labels: int64 [files], each file's class.
    """

    classes: list[str]
    shards: list[str]
    shard_sizes: npt.NDArray[np.int64]
    paths: list[str]
    places: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def file_of(root: str) -> str:
    """The path of the index of a pack in this folder."""
    return os.path.join(root, FOLDER, NAME)


def read(root: str) -> Index:
    """Read and check the index of the pack in a folder.

    Raises:
        PackError: it cannot be read, is of a newer format, or says what cannot be.
    """
    file = file_of(root)
    try:
        connection = sqlite3.connect(f"file:{quote(os.path.abspath(file))}?mode=ro&immutable=1", uri=True)
        try:
            return _checked(file, *_tables(connection, os.path.getsize(file), file))
        finally:
            connection.close()
    except (sqlite3.Error, OverflowError, UnicodeError, MemoryError) as error:
        raise PackError(f"{file}: the pack's index cannot be read: {error}") from error


def _tables(connection: Any, size: int, file: str) -> tuple[list[Any], list[Any], list[Any]]:
    """The rows of classes, shards and files, of tables that are as ``MADE`` says."""
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    steps = iter(range(1 + size // _STEPS))  # an intact one takes fewer steps than it has bytes
    connection.set_progress_handler(lambda: next(steps, None) is None, _STEPS)
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE name LIKE 'accel%'")}
    version = connection.execute(_ABOUT, ("format",)).fetchone() if MADE[0] in found else None
    if version is not None and version[0] != FORMAT:
        raise PackError(f"{file}: the pack has format {version[0]}, and this version of accel reads {FORMAT}")
    if version is None or found != set(MADE):
        raise PackError(f"{file}: this is not the index of a pack that accel made: its tables are other ones")
    classes, shards, files = (connection.execute(query).fetchall() for query in (_CLASSES, _SHARDS, _FILES))
    (count,) = connection.execute(_ABOUT, ("files",)).fetchone() or (None,)
    if count != str(len(files)):
        raise PackError(f"{file}: the pack's index has {len(files)} files, and says that it has {count}")
    return classes, shards, files


def _checked(file: str, classes: list[Any], shards: list[Any], files: list[Any]) -> Index:
    """What the tables say, if it can be."""
    fault = _fault(classes, shards, files)
    if fault:
        raise PackError(f"{file}: the pack's index is damaged: {fault}")
    numbers = np.array([row[1:5] for row in files], np.int64).reshape(-1, 4)
    sizes = np.array([size for _, _, size in shards], np.int64)
    shard, offset, length, label = numbers.T
    for what, wrong in (
        ("a shard that is not there", (shard < 0) | (shard >= len(shards))),
        ("a class that is not there", (label < 0) | (label >= len(classes))),
        ("a class of which others come before", np.diff(label, prepend=0) < 0),
        ("bytes beyond its shard", (offset < 0) | (length < 0) | (offset > _LARGEST_SHARD) | (length > _LARGEST_SHARD)),
    ):
        if wrong.any():
            raise PackError(f"{file}: the pack's index is damaged: file {int(np.argmax(wrong))} has {what}")
    beyond = offset + length > sizes[shard]
    if beyond.any():
        raise PackError(
            f"{file}: the pack's index is damaged: file {int(np.argmax(beyond))} has bytes beyond its shard"
        )
    paths = [os.fsdecode(row[5]) for row in files]
    if len(set(paths)) < len(paths):
        raise PackError(f"{file}: the pack's index is damaged: two files have the same path")
    return Index(
        *([os.fsdecode(name) for _, name in classes], [name for _, name, _ in shards], sizes),
        *(paths, np.ascontiguousarray(numbers[:, :3]), np.ascontiguousarray(label)),
    )


def _fault(classes: list[Any], shards: list[Any], files: list[Any]) -> str:
    """Why rows cannot be, as far as their types and their order tell; "" if they can."""
    for what, rows, kinds in (
        ("class", classes, (int, bytes)),
        ("shard", shards, (int, str, int)),
        ("file", files, (int, int, int, int, int, bytes)),
    ):
        for number, row in enumerate(rows):
            if row[0] != number or tuple(map(type, row)) != kinds:
                return f"{what} {number} is not described as it must be"
    names = [name for _, name in classes]
    for name in names:
        if b"/" in name or name in (b"", b".", b".."):
            return f"{name!r} is not the name of a class"
    for _, name, size in shards:
        if Path(name).name != name or not 0 <= size <= _LARGEST_SHARD:
            return f"{name!r} is not a shard"
    for number, (*_, label, path) in enumerate(files):
        parts = path.split(b"/")
        known = 0 <= label < len(names) and parts[0] == names[label]
        if not known or len(parts) < 2 or not {b"", b".", b".."}.isdisjoint(parts):
            return f"file {number} has the path {path!r}"
    return ""
