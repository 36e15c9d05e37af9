"""A cache under attack: whatever is flipped, cut or replaced: no wrong byte, no death, no hang, no error."""

import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from accel.cache import entry as entries
from accel.cache import folder as folders
from accel.cache import reading
from accel.cache.entry import INDEX, PLANES, RESULT, packed, unpacked
from accel.cache.faults import ENTRY
from accel.cache.folder import Unusable
from accel.cache.segments import name_of
from accel.codec.files import reader
from tests.cache.kept import (
    fallbacks,
    filled,
    in_child_shown,
    key,
    number_of,
    opened,
    put,
    right,
)
from tests.support import inside
from tests.support.processes import in_child, linux

pytestmark = linux
FILES = 40


def copied(folder: Path, to: Path) -> list[Path]:
    """A copy of a cache that is in use, with its log and the index of that; its files that have content."""
    filled(folder, FILES)
    shutil.copytree(folder, to)
    inside.close_caches()
    return [path.relative_to(to) for path in to.rglob("*") if path.is_file() and path.stat().st_size]


def flip(path: Path, drawn: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[drawn.randrange(len(content))] ^= drawn.choice([1 << drawn.randrange(8), drawn.randrange(1, 256)])
    path.write_bytes(content)


def used_by_a_child(folder: Path) -> int:
    """How many entries a process finds that goes on to fill the cache; raises where it dies, hangs or errs."""
    reader, writer = os.pipe()

    def use() -> bool:
        try:
            cache = opened(folder)
        except Unusable:
            os.write(writer, b"0")
            return True
        found = sum(right(cache, number) for number in range(FILES))
        for number in range(FILES, FILES + 4):
            put(cache, number, PLANES)
        cache.flush()
        cache._known.clear()
        for number in range(FILES + 4):
            right(cache, number)
        cache.close()
        os.write(writer, b"%d" % found)
        return True

    assert in_child_shown(use)
    os.close(writer)
    found = os.read(reader, 100)
    os.close(reader)
    return int(found)


def attacked(times: int, folder: Path, sound: Path, flips: int = 5, only: str = "") -> int:
    """Flip bytes of a cache, of files of that name or of all, and have it used; how often something was lost."""
    drawn, lost = random.Random(4), 0
    files = copied(folder, sound)
    assert {path.name for path in files} >= {"table.sqlite", "table.sqlite-wal", "table.sqlite-shm", "00000001"}
    for _ in range(times):
        shutil.rmtree(folder)
        shutil.copytree(sound, folder)
        if only or drawn.random() < 0.5:  # its log is written back first
            in_child(lambda: opened(folder).close() is None)()
        for _ in range(flips):
            path = folder / drawn.choice([path for path in files if only in path.name])
            if path.exists() and path.stat().st_size:
                flip(path, drawn)
        lost += used_by_a_child(folder) < 2 * FILES
    return lost


@number_of(30, 2000)
def test_flipped_bytes_lose_entries_and_change_none(times: int, folder: Path, tmp_path: Path) -> None:
    assert attacked(times, folder, tmp_path / "sound") > times / 3, "hardly anything that was flipped mattered"


@pytest.mark.parametrize(
    ("module", "name", "only"), [(reading, "sound_parts", "0000"), (entries, "crc32", "table.sqlite")]
)
def test_a_check_that_is_not_made_would_be_noticed(
    module: Any, name: str, only: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attacked(3, folder, tmp_path / "sound", 40, only)
    inside.close_caches()
    shutil.rmtree(folder)
    monkeypatch.setattr(module, name, lambda *given: True)
    monkeypatch.setattr(reader, "agrees", lambda: False)  # compiled code makes its checks itself
    with pytest.raises(AssertionError):
        attacked(20, folder, tmp_path / "again", 40, only)


def test_damage_is_counted_and_made_good(folder: Path) -> None:
    cache = filled(folder, 4)
    found = cache.look(key(2))
    assert found is not None
    entry = found.entries[PLANES]
    path = folder / folders.SEGMENTS / name_of(entry.segment)
    content = bytearray(path.read_bytes())
    begin, end = entry.span(3, 4)
    content[entry.offset + begin] ^= 1
    path.write_bytes(content)
    out = bytearray(entry.size)
    assert cache.read(entry, 0, 3, out[: entry.span(0, 3)[1]]), "its other parts are sound"
    with fallbacks() as counted:
        assert not cache.read(entry, 3, 4, bytearray(end - begin))
        assert not cache.read(entry, 0, 7, out)
        assert right(cache, 2) == 1, "it is not found again"
    assert counted[ENTRY] >= 1
    cache.flush()
    cache._dropped.clear()
    assert right(cache, 2) == 1, "by nobody"
    assert put(cache, 2, PLANES)
    cache.flush()
    assert right(cache, 2) == 2


@pytest.mark.parametrize("harm", ["content", "row"])
def test_damage_is_counted_once_however_often_it_is_met(folder: Path, harm: str) -> None:
    cache = filled(folder, 4)
    found = cache.look(key(2))
    assert found is not None
    if harm == "content":
        for path in (folder / folders.SEGMENTS).iterdir():
            os.truncate(path, 0)
    else:
        connection = sqlite3.connect(folder / folders.TABLE)
        with connection:
            connection.execute("UPDATE entries SET row = x'00'")
        connection.close()
    with fallbacks() as counted:
        for _ in range(3):  # until the end of a batch it is in the table
            cache._known.clear()
            cache.look(key(2))
            for entry in found.entries.values() if harm == "content" else ():
                assert not cache.read(entry, 0, 1, bytearray(entry.span(0, 1)[1]))
    assert counted == {ENTRY: 2}


def test_damage_of_what_others_are_not_told_yet_is_not_found_again(folder: Path) -> None:
    cache = opened(folder)
    assert put(cache, 2, PLANES)
    found = cache.look(key(2))
    assert found is not None
    entry = found.entries[PLANES]
    for path in (folder / folders.SEGMENTS).iterdir():
        os.truncate(path, 0)
    with fallbacks() as counted:
        assert not cache.read(entry, 0, 1, bytearray(entry.span(0, 1)[1]))
        assert cache.look(key(2)) is None
    assert counted == {ENTRY: 1}
    assert put(cache, 2, PLANES)
    assert right(cache, 2) == 1


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("forged", ["place", "digests", "key"])
def test_a_row_with_a_right_checksum_names_no_other_files_content(
    folder: Path, forged: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(folder, 4).close()
    connection = sqlite3.connect(folder / folders.TABLE)
    with connection:
        rows = [(number, unpacked(row)) for number, row in connection.execute("SELECT id, row FROM entries")]
        own = {(entry.header, entry.kind): (number, entry) for number, entry in rows if entry}
        for kind in (INDEX, PLANES):
            (number, entry), (_, other) = own[b"file 1", kind], own[b"file 2", kind]
            if forged == "key":
                entry = other._replace(key=entry.key, header=entry.header)
            else:
                entry = entry._replace(segment=other.segment, offset=other.offset)
                entry = entry._replace(numbers=other.numbers) if forged == "digests" else entry
            connection.execute("UPDATE entries SET row = ? WHERE id = ?", (packed(entry), number))
    connection.close()
    if not compiled:
        monkeypatch.setattr(reader, "agrees", lambda: False)
    cache = opened(folder)
    with fallbacks() as counted:
        assert [right(cache, number) for number in range(4)] == [2, 0, 2, 2]
    assert counted == {ENTRY: 2}
    assert put(cache, 1, PLANES)
    assert right(cache, 1) == 1


@pytest.mark.parametrize("harm", ["removed", "short", "empty"])
def test_segments_that_are_cut_or_gone(folder: Path, harm: str) -> None:
    filled(folder, 4).close()
    for path in (folder / folders.SEGMENTS).iterdir():
        if harm == "removed":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2 if harm == "short" else 0)
    cache = opened(folder)
    with fallbacks() as counted:
        found = sum(right(cache, number) for number in range(4))
    assert (0 < found < 8) if harm == "short" else found == 0
    assert counted[ENTRY] == 8 - found
    for number in range(4):
        put(cache, number, PLANES)
        put(cache, number, INDEX)
    cache.flush()
    assert [right(cache, number) for number in range(4)] == [2] * 4


def test_a_table_that_is_damaged_meanwhile_is_done_without_and_made_anew(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = filled(folder, 200)
    cache._table.close()
    with (folder / folders.TABLE).open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    cache._known.clear()
    with fallbacks() as counted:
        assert not any(right(cache, number) for number in range(200))
        assert not put(cache, 1, RESULT)
        cache.flush()
        assert cache.used()[0] == 0
    assert any("the cache is damaged, and not used any more" in reason for reason in counted)

    def other() -> bool:
        inside.forget_caches()
        with pytest.raises(Unusable, match=r"it is damaged .*, and others use it still"):
            opened(folder)
        return True

    assert in_child(other)()
    cache.close()
    assert right(opened(folder), 1) == 0
    assert "begins anew" in caplog.text
    assert right(filled(folder, 3), 1) == 2


@pytest.mark.parametrize(
    "gone", ["TABLE shelves", "TABLE about", "TABLE segments", "TABLE entries", "INDEX of_segment"]
)
def test_a_table_that_lacks_one_of_its_own_begins_anew(
    folder: Path, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, or in the run after the one that found it out; said once."""
    filled(folder, 8).close()
    connection = sqlite3.connect(folder / folders.TABLE)
    connection.execute(f"DROP {gone}")
    connection.close()
    for _ in range(2):
        cache = opened(folder)
        right(cache, 1)
        put(cache, 1, RESULT)
        inside.close_caches()
    assert caplog.text.count("begins anew") == 1
    cache = opened(folder)
    assert right(cache, 1) == 1
    assert cache.used()[0] < 4000, "what was there is gone"
