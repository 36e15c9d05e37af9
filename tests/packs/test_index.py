"""An index may come from strangers: what cannot be is refused with a sentence, and nothing of it is used."""

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder

import accel
from accel.codec.files import pack_index
from accel.errors import PackError
from tests.support.helpers import assert_same


def change(pack: Path, *statements: str | tuple[str, tuple[Any, ...]]) -> None:
    with closing(sqlite3.connect(pack_index.file_of(str(pack)))) as connection, connection:
        for statement in statements:
            connection.execute(*([statement] if isinstance(statement, str) else statement))


def put(name: str, value: Any) -> Callable[[Path], None]:
    """Put another value in a column's place."""
    return lambda pack: change(pack, ("UPDATE accel_columns SET value = ? WHERE name = ?", (value, name)))


def edit(name: str, by: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change the numbers, or the bytes, of a column."""

    def edited(pack: Path) -> None:
        with closing(sqlite3.connect(pack_index.file_of(str(pack)))) as connection:
            [(value,)] = connection.execute("SELECT value FROM accel_columns WHERE name = ?", (name,))
        if name in ("counts", "places", "sizes"):
            numbers = np.frombuffer(value, "<i8").copy()
            by(numbers.reshape(-1, 3) if name == "places" else numbers)
            put(name, numbers.tobytes())(pack)
        else:
            put(name, by(value))(pack)

    return edited


def setting(place: Any, value: int) -> Callable[[Any], None]:
    return lambda numbers: numbers.__setitem__(place, value)


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a newer format": (put("format", b"2"), "format 2"),
    "a format that is no bytes": (put("format", "1"), "cannot be used"),
    "a view in its place": (
        lambda pack: change(
            pack, "ALTER TABLE accel_columns RENAME TO t", "CREATE VIEW accel_columns AS SELECT * FROM t"
        ),
        "another one",
    ),
    "another table": (
        lambda pack: change(
            pack,
            "ALTER TABLE accel_columns RENAME TO t",
            "CREATE TABLE accel_columns (name TEXT PRIMARY KEY, value BLOB NOT NULL, more INT AS (1/0))",
            "INSERT INTO accel_columns SELECT * FROM t",
        ),
        "another one",
    ),
    "a column is missing": (
        lambda pack: change(pack, "DELETE FROM accel_columns WHERE name = 'sizes'"),
        "columns are other ones",
    ),
    "one too many": (
        lambda pack: change(pack, "INSERT INTO accel_columns VALUES ('more', x'00')"),
        "columns are other ones",
    ),
    "a hundred too many": (
        lambda pack: change(
            pack, *[f"INSERT INTO accel_columns VALUES ('more{number}', zeroblob(1000))" for number in range(100)]
        ),
        "columns are other ones",
    ),
    "text for bytes": (put("paths", "x.jpg\0"), "cannot be used"),
    "a number for bytes": (put("places", 3), "cannot be used"),
    "paths are cut": (edit("paths", lambda value: value[:-1]), "a column is cut"),
    "a path is missing": (edit("paths", lambda value: value[value.index(b"\0") + 1 :]), "different lengths"),
    "a digest is missing": (edit("digests", lambda value: value[16:]), "different lengths"),
    "a place is missing": (put("places", b"\0" * 24), "different lengths"),
    "half a number": (edit("classes", lambda value: value + b"x\0"), "different lengths"),
    "up": (edit("paths", lambda value: value.replace(b"deeper/x.jpg", b"../../etc/x")), "leads elsewhere"),
    "up at the end": (edit("paths", lambda value: value.replace(b"deeper/x.jpg", b"deeper/..")), "leads elsewhere"),
    "absolute": (edit("paths", lambda value: value.replace(b"x.jpg", b"/etc/passwd", 1)), "leads elsewhere"),
    "empty": (edit("paths", lambda value: value.replace(b"x.jpg", b"", 1)), "leads elsewhere"),
    "here": (edit("classes", lambda value: value.replace(b"b\0", b".\0")), "leads elsewhere"),
    "a class in a class": (edit("classes", lambda value: value.replace(b"b\0", b"b/b\0")), "not the name of a class"),
    "a class without a name": (edit("classes", lambda value: value.replace(b"b\0", b"\0")), "leads elsewhere"),
    "a class twice": (edit("classes", lambda value: value.replace(b"c\0", b"b\0")), "same name"),
    "a path twice": (edit("paths", lambda value: value.replace(b"X.JPG", b"x.jpg", 1)), "same path"),
    "a shard elsewhere": (
        edit("shards", lambda value: value.replace(b"shard", b"../hard", 1)),
        "not the name of a class or",
    ),
    "negative counts": (edit("counts", setting(0, -4)), "in no class"),
    "counts that wrap": (edit("counts", lambda n: (setting(0, 2**62)(n), setting(1, 2**62)(n))), "in no class"),
    "too few": (edit("counts", setting(0, 0)), "in no class"),
    "a negative shard": (edit("places", setting((3, 0), -1)), "impossible place"),
    "no such shard": (edit("places", setting((3, 0), 99)), "not there"),
    "a negative offset": (edit("places", setting((3, 1), -512)), "impossible place"),
    "a negative size": (edit("places", setting((3, 2), -1)), "impossible place"),
    "far beyond": (edit("places", setting((3, 1), 2**63 - 1)), "impossible place"),
    "beyond": (edit("places", setting((3, 2), 10**9)), "beyond the end"),
    "an impossible shard": (edit("sizes", setting(0, 2**62)), "impossible size"),
    "no database": (lambda pack: Path(pack_index.file_of(str(pack))).write_bytes(b"nothing"), "cannot be used"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_is_refused(pack: Path, name: str) -> None:
    damage, reason = HOSTILE[name]
    damage(pack)
    for make in (accel.PackDataset, ImageFolder):
        with accel.image_backend("cpu"), pytest.raises(PackError, match=rf"index\.sqlite: .*{reason}"):
            make(pack)


@pytest.mark.parametrize("harm", ["another's", "empty", "pipe"])
def test_an_index_that_is_not_accels_makes_no_pack(tree: Path, pack: Path, harm: str) -> None:
    """The files beside it are ordinary ones, and what torchvision and Pillow raise is theirs."""
    index = Path(pack_index.file_of(str(pack)))
    if harm == "another's":
        change(pack, "DROP TABLE accel_columns")
    else:
        index.unlink()
        index.touch() if harm == "empty" else os.mkfifo(index)
    file = pack / "c" / "file.jpg"
    file.parent.mkdir()
    file.write_bytes((tree / "c" / "x.jpg").read_bytes())
    with accel.image_backend("cpu"):
        assert len(ImageFolder(pack, allow_empty=True)) == 1
        assert_same(Image.open(file), Image.open(tree / "c" / "x.jpg"))
        with pytest.raises(FileNotFoundError):
            Image.open(pack / "c" / "missing.jpg")
    with pytest.raises(PackError, match="no pack in this folder"):
        accel.PackDataset(pack)


def test_nothing_of_accels_is_executed(pack: Path) -> None:
    """Triggers and views that others put beside accel's table are never reached."""
    change(
        pack,
        "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "CREATE TRIGGER t AFTER INSERT ON samples BEGIN SELECT count(*) FROM endless; END",
    )
    accel.PackDataset(pack)


def test_reading_ends(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a query would take."""
    monkeypatch.setattr(
        pack_index, "_ALL", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i), x'' FROM n"
    )
    with pytest.raises(PackError, match="interrupted"):
        accel.PackDataset(pack)


@pytest.mark.parametrize("count", [60, pytest.param(20_000, marks=pytest.mark.sweep)])
def test_flipped_bytes(tree: Path, pack: Path, count: int) -> None:
    """A damaged index is refused, or names other files of its own; a file that is read is read from its own bytes."""
    file, numbers = Path(pack_index.file_of(str(pack))), random.Random(0)
    content, expected = file.read_bytes(), ImageFolder(tree)
    refused = 0
    with accel.image_backend("cpu"):
        for _ in range(count):
            damaged = bytearray(content)
            for _ in range(numbers.choice((1, 3, 40))):
                damaged[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
            file.unlink()
            file.write_bytes(damaged)
            try:
                dataset = ImageFolder(pack)
                number = numbers.randrange(len(dataset))
                path, (image, _) = os.path.relpath(dataset.samples[number][0], pack), dataset[number]
            except (PackError, FileNotFoundError, OSError):
                refused += 1
                continue
            if path == os.path.relpath(expected.samples[number][0], tree):
                assert_same(image, expected[number][0])
    assert 0 < refused < count
