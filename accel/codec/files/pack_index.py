"""The index of a pack: one SQLite file that says in which shard, and where in it, each of its files lies.

A *pack* is a folder with the files of an ``ImageFolder`` tree in tar *shards* (WebDataset's layout) and this index in
``.nv-meta/``. The tables ``samples`` and ``sample_parts`` are those of Megatron-Energon's index, which reads a pack as
it is; accel reads a table of its own, which has a whole column in each row. An index may come from strangers: SQLite
is told to trust nothing in it, and all columns are checked before they are used.
"""

from __future__ import annotations

import os
from contextlib import closing
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from accel.errors import PackError, require
from accel.system.imports import LazyModule

sqlite3: Any = LazyModule("sqlite3")

FOLDER, NAME, ORIGIN = ".nv-meta", "index.sqlite", "origin"
FORMAT = b"1"

MADE = "CREATE TABLE accel_columns (name TEXT PRIMARY KEY, value BLOB NOT NULL)"
"""accel's own table: a row for the ``format`` (``FORMAT``), and one for each of ``COLUMNS``."""

DIGEST = 16
"""The bytes of a file's digest, by BLAKE2b."""

_TABLE = "SELECT sql FROM sqlite_master WHERE name = 'accel_columns'"
_ALL = "SELECT name, value FROM accel_columns"
_STEPS = 1 << 16  # of SQLite's machine, between two looks at how many there were
_LARGEST = 1 << 40  # bytes of a shard; keys of files (``packs``) have no room for larger offsets


class ForeignIndex(PackError):
    """Error of an index that accel did not make, such as Energon's own."""


COLUMNS = frozenset({"classes", "counts", "paths", "places", "digests", "shards", "sizes"})
"""What an index says, in bytes: that of ``Index``, with the number of files of each class (``counts``) in place of
``begins``. Names are the system's bytes (``os.fsencode``), each ending with a 0; numbers are int64, little-endian."""


class Index(NamedTuple):
    """What an index says, checked.

    Attributes:
        classes: the names of the class folders. begins: the number of the first file of each, and of all files.
        paths: of all files, each below its class folder, in ImageFolder's order.
        places: int64 [files, 3], each file's shard, offset and size in it. digests: uint8 [files, DIGEST], of contents.
        shards: names of files in the pack's folder. sizes: their bytes.
    """

    classes: list[str]
    begins: list[int]
    paths: list[str]
    places: npt.NDArray[np.int64]
    digests: npt.NDArray[np.uint8]
    shards: list[str]
    sizes: list[int]

    def files(self) -> list[tuple[str, int]]:
        """The path of each file below the pack's folder, and the number of its class, in ImageFolder's order."""
        return [
            (f"{name}/{path}", label)
            for label, name in enumerate(self.classes)
            for path in self.paths[self.begins[label] : self.begins[label + 1]]
        ]


def file_of(root: str) -> str:
    """The path of the index of a pack in this folder."""
    return os.path.join(root, FOLDER, NAME)


def origin_of(root: str) -> str:
    """The path of the file that has a digest of the url that the pack in this folder is fetched from, if it is."""
    return os.path.join(root, FOLDER, ORIGIN)


def opened(file: str) -> Any:
    """A connection to an index, which only reads, and trusts nothing in it."""
    connection = sqlite3.connect(f"file:{quote(os.path.abspath(file))}?mode=ro&immutable=1", uri=True)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    return connection


def read(root: str) -> Index:
    """``read_file`` of the index of the pack in a folder."""
    return read_file(file_of(root))


def read_file(file: str) -> Index:
    """Read and check an index.

    Raises:
        ForeignIndex: accel did not make it.
        PackError: it cannot be read, is of another format, or says what cannot be.
    """
    try:
        with closing(opened(file)) as connection:
            found = _columns(connection, os.path.getsize(file), file)
        version = found.pop("format", None)
        if version != FORMAT:
            raise ValueError(f"it has format {_text(version)}, and this version of accel reads {_text(FORMAT)}")
        require(found.keys() == COLUMNS, "its columns are other ones")
        require({bytes}.issuperset(map(type, found.values())), "a column is no bytes")
        return _checked(**found)
    except (sqlite3.Error, OverflowError, ValueError, TypeError, MemoryError) as error:
        raise PackError(f"{file}: the pack's index cannot be used: {error}") from error


def write(connection: Any, **columns: bytes) -> None:
    """Put accel's own table into an index; ``columns``: see ``COLUMNS``. Raises ``ValueError`` if ``read`` would refuse
    it."""
    _checked(**columns)
    connection.execute(MADE)
    connection.executemany("INSERT INTO accel_columns VALUES (?, ?)", {"format": FORMAT, **columns}.items())


def _columns(connection: Any, size: int, file: str) -> dict[str, Any]:
    """The rows of accel's own table."""
    steps = iter(range(1 + size // _STEPS))  # an intact one takes fewer steps than it has bytes
    connection.set_progress_handler(lambda: next(steps, None) is None, _STEPS)
    made = connection.execute(_TABLE).fetchall()
    if not made:
        raise ForeignIndex(f"{file}: this is not the index of a pack: accel did not make it")
    require(made == [(MADE,)], "accel's table is another one")
    return dict(connection.execute(_ALL).fetchmany(len(COLUMNS) + 2))


def _checked(**columns: bytes) -> Index:
    """What columns say; raises ``ValueError`` if it cannot be."""
    names = [columns[name] for name in ("classes", "paths", "shards")]
    classes, paths, shards = map(_names, names)
    counts, sizes, numbers = (np.frombuffer(columns[name], "<i8") for name in ("counts", "sizes", "places"))
    digests = np.frombuffer(columns["digests"], np.uint8)
    n = len(paths)
    lengths = (len(counts), len(numbers), len(digests), len(sizes)) == (len(classes), 3 * n, DIGEST * n, len(shards))
    require(lengths, "its columns are of different lengths")
    require(counts.min(initial=0) >= 0 and counts.max(initial=0) <= n == counts.sum(), "files are in no class")
    require(sizes.min(initial=0) >= 0 and sizes.max(initial=0) <= _LARGEST, "a shard has an impossible size")
    for name in (*classes, *shards):
        require("/" not in name, f"{name!r} is not the name of a class or a shard")
    for column in names:
        parts = b"/" + column.replace(b"\0", b"/\0/")
        require(not any(part in parts for part in (b"//", b"/./", b"/../")), "it has a path that leads elsewhere")
    places = numbers.reshape(n, 3)
    shard, offset, size = places.T
    require(places.min(initial=0) >= 0 and places.max(initial=0) <= _LARGEST, "a file has an impossible place")
    require(shard.max(initial=-1) < len(shards), "a file is in a shard that is not there")
    require(bool((offset + size <= sizes[shard]).all()), "a file goes beyond the end of its shard")
    begins = [0, *np.cumsum(counts).tolist()]
    for name, (begin, end) in zip(classes, pairwise(begins), strict=True):
        require(len({*paths[begin:end]}) == end - begin, f"two files of class {name!r} have the same path")
    require(len({*classes}) == len(classes), "two classes have the same name")
    return Index(classes, begins, paths, places, digests.reshape(n, DIGEST), shards, sizes.tolist())


def _text(value: Any) -> str:
    return value.decode(errors="replace") if type(value) is bytes else repr(value)


def _names(column: bytes) -> list[str]:
    """Names, each of which ends with a 0."""
    require(type(column) is bytes and column[-1:] in (b"", b"\0"), "a column is cut")
    return os.fsdecode(column).split("\0")[:-1]
