"""The cache in a folder: what is found is what was put, within the budget, and in the folder's own limits."""

import os
import random
import stat
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from accel.cache import cache as caches
from accel.cache import folder as folders
from accel.cache import survey
from accel.cache.cache import Cache
from accel.cache.entry import INDEX, PLANES, RESULT, Entry, numbers_of, packed_key, place_of
from accel.cache.faults import TOO_LARGE
from accel.cache.filling import Filling
from accel.cache.folder import Unusable
from accel.cache.table import Table
from accel.system import log
from tests.cache.kept import BUDGET, fallbacks, filled, key, opened, parts, put, right
from tests.support.processes import finished, in_child, in_threads, linux, started

pytestmark = linux


# -- look, read, put ----------------------------------------------------------------------------------------


def test_what_is_put_is_found_in_every_process_and_later(folder: Path) -> None:
    cache = filled(folder, 60)
    assert [right(cache, number) for number in range(61)] == [2] * 60 + [0]
    assert in_child(lambda: all(right(cache, number) == 2 for number in range(60)))()
    cache.close()
    assert all(right(opened(folder), number) == 2 for number in range(60))


def test_parts_are_read_by_themselves(folder: Path) -> None:
    cache = filled(folder, 3)
    found = cache.look(key(1))
    assert found is not None
    entry, expected = found.entries[PLANES], parts(1, PLANES)
    for first in range(8):
        for last in range(first, 8):
            begin, end = entry.span(first, last)
            out = bytearray(b"\xab" * (end - begin))
            assert cache.read(entry, first, last, out)
            assert bytes(out) == b"".join(expected[first:last])
    with pytest.raises(ValueError, match="a buffer of"):
        cache.read(entry, 1, 3, bytearray(5))


def test_what_is_put_while_the_numbers_are_read_again_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread puts it in."""
    cache, numbers, late = filled(folder, 1), Table.numbers, [1]

    def late_numbers(self: Table) -> Any:
        found = numbers(self)
        while late:
            assert put(cache, late.pop(), PLANES)
        return found

    monkeypatch.setattr(Table, "numbers", late_numbers)
    cache._numbers.renew((-1, -1))  # another version
    assert not late
    cache.flush()
    assert right(cache, 0) == 2
    assert right(cache, 1) == 1


def test_entries_without_content(folder: Path) -> None:
    cache = opened(folder)
    contents: dict[bytes, list[bytes]] = {b"a": [], b"b": [b""], b"c": [b"", b"x", b""]}
    for name, content in contents.items():
        assert cache.put(name, b"", INDEX, b"".join(content), ends=list(accumulate(map(len, content))))
    cache.flush()
    for name, content in contents.items():
        found = cache.look(name)
        assert found is not None
        out = bytearray(found.entries[INDEX].size)
        assert cache.read(found.entries[INDEX], 0, len(content), out)
        assert bytes(out) == b"".join(content)


def test_entries_that_come_together_are_those_that_come_one_by_one(folder: Path) -> None:
    cache, dice = opened(folder, 64 << 20), random.Random(0)
    contents = [dice.randbytes(dice.randrange(40_000, 100_000)) for _ in range(300)]
    ends = [[30_000, 30_001, len(content)][number % 2 :] for number, content in enumerate(contents)]
    files = [(key(number), b"file %d" % number, b"meta" * (number % 9), ends[number]) for number in range(300)]
    assert cache.put(key(7), b"file 7", RESULT, contents[7], b"meta" * 7, ends[7])
    assert cache.put_all(files[:250], RESULT, b"".join(contents[:250])) == [True] * 250
    used = cache.used()
    assert cache.put_all(files[5:250], RESULT, b"".join(contents[5:250])) == [True] * 245
    assert cache.used() == used, "they were there"
    assert cache.put_all(files[200:], RESULT, b"".join(contents[200:])) == [True] * 100
    assert len(list((folder / "segments").iterdir())) > 20, "they fill one after the other"
    cache.flush()
    for (name, header, meta, own), content in zip(files, contents, strict=True):
        found = cache.look(name)
        assert found is not None
        entry, out = found.entries[RESULT], bytearray(len(content) - own[0])
        assert (found.header, entry.meta, [*entry.ends]) == (header, meta, own)
        assert cache.read(entry, 1, len(own), out)
        assert bytes(out) == content[own[0] :]


def test_of_entries_that_come_together_the_first_have_what_room_there_is(folder: Path) -> None:
    cache, content = opened(folder, 1 << 20), random.Random(1).randbytes(100_000)
    files = [(key(number), b"", b"", [len(content)]) for number in range(20)]
    kept = cache.put_all(files, RESULT, content * 20)
    assert kept == sorted(kept, reverse=True)
    assert 5 <= sum(kept) <= 10
    cache.flush()
    assert cache.used()[0] <= 1 << 20
    assert [cache.look(name) is not None for name, *_ in files] == kept


def test_a_group_may_be_larger_than_an_entry_may(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "LARGEST", 1000)
    cache, content = opened(folder), random.Random(1).randbytes(3000)
    assert cache.put_all([(key(number), b"", b"", [1000]) for number in range(3)], RESULT, content) == [True] * 3
    with fallbacks() as counted:
        assert not cache.put(key(9), b"", RESULT, content[:1001])
        assert not cache.put(key(9), b"", RESULT, b"", b"meta" * (1 << 14))
    assert counted == {TOO_LARGE: 2}


def test_digests_of_a_group_of_more_than_4_gb() -> None:
    """Its end alone is there, so that it takes no memory: of what is cut the digest is that of less."""
    assert numbers_of(b"the end..", [[1 << 31]] * 2 + [[9]], [7] * 3)[2] == numbers_of(b"", [[9]], [7])[0]


def test_entries_are_told_apart_by_every_part_of_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = filled(folder, 4)
    for part in range(5):
        other = list(key(3))
        other[part] += 1
        assert cache.look(tuple(other)) is None  # type: ignore[arg-type]
    assert cache.look(packed_key(key(3))) is not None
    monkeypatch.setattr(caches, "place_of", lambda name: caches_place)
    caches_place = next(iter(cache._table.rows_after(-(1 << 63), 1)))[0] & -16
    cache._known.clear()
    assert sum(cache.look(key(number)) is not None for number in range(4)) == 1, "all have the place of one"


def test_a_later_entry_takes_the_place_and_the_same_again_takes_none(folder: Path) -> None:
    cache = filled(folder, 5)
    used = cache.used()
    assert put(cache, 3, PLANES)
    cache.flush()
    assert cache.used() == used
    assert cache.put(key(3), b"other", PLANES, b"new")
    cache.flush()
    found = cache.look(key(3))
    assert found is not None
    assert found.entries[PLANES].header == b"other"
    out = bytearray(3)
    assert cache.read(found.entries[PLANES], 0, 1, out)
    assert out == b"new"
    assert found.entries[INDEX].header == b"file 3"


def test_what_others_put_is_seen_soon(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = filled(folder, 2)
    assert cache.look(key(1)) is cache.look(key(1)), "it is remembered"

    def other() -> bool:
        kept = put(cache, 1, RESULT) and put(cache, 2, RESULT)
        cache.flush()
        return kept

    assert in_child(other)()
    cache._known_until = 0.0  # the time is over
    assert right(cache, 1) == 3
    assert cache.look(key(2)) is not None, "what was not found is asked for again"
    put(cache, 0, RESULT)
    cache._filling.flush()  # as a put does in between
    cache._known_until = 0.0
    assert right(cache, 0) == 3


def test_threads_share_one(folder: Path) -> None:
    cache = filled(folder, 40)

    def work(seed: int) -> int:
        drawn = random.Random(seed)
        for _ in range(150):
            put(cache, 100 * seed + drawn.randrange(30), RESULT)
            right(cache, drawn.randrange(40))
            if drawn.random() < 0.1:
                cache.flush()
        cache.flush()
        return sum(right(cache, number) for number in range(40))

    assert in_threads([lambda seed=seed: work(seed) for seed in range(1, 4)]) == [80] * 3  # type: ignore[misc]


# -- the budget ---------------------------------------------------------------------------------------------


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.name.endswith("wal"))


@pytest.mark.parametrize("budget", [1 << 20, 5_000_000, 12_345_678])
def test_a_full_cache_stays_within_its_budget_and_keeps_what_it_has(folder: Path, budget: int) -> None:
    cache = opened(folder, budget)
    kept = []
    for number in range(4000):
        if not put(cache, number, PLANES, 4000):
            break
        kept.append(number)
        if number % 7 == 0:
            cache.flush()
    cache.flush()
    used, size = cache.used()
    assert number < 3999, "it was never full"
    assert size == budget
    assert budget * 0.9 < used <= budget
    assert size_of(folder / folders.SEGMENTS) <= budget
    assert size_of(folder) <= budget + 65_536, "a database has pages of its own, an shm file 32 KB"
    assert sum(right(cache, number, 4000) for number in kept) >= len(kept) - 64, "what waited when it was full"
    assert not cache.room(PLANES, 1 << 20)


def test_the_budget_is_one_for_all_processes(folder: Path) -> None:
    budget = 4_000_000
    cache = opened(folder, budget)

    def work(seed: int) -> bool:
        for number in range(300):
            put(cache, 1000 * seed + number, (PLANES, INDEX)[number % 2], 4000)
            if number % 5 == 0:
                cache.flush()
        cache.flush()
        return cache.used()[0] <= budget

    children = [in_child(lambda seed=seed: work(seed)) for seed in range(3)]  # type: ignore[misc]
    assert all(child() for child in children)
    assert cache.used()[0] > budget * 0.8
    assert size_of(folder / folders.SEGMENTS) <= budget
    found = [right(cache, 1000 * seed + number, 4000) for seed in range(3) for number in range(300)]
    assert sum(found) > 100


def test_what_many_have_claimed_for_later_leaves_room_for_others(folder: Path) -> None:
    cache, content = opened(folder, 64 << 20), memoryview(bytes(20_000))
    own = cache._filling
    others = [Filling(own.budget, own._table, own._segments, own._faults, own._worth) for _ in range(100)]
    for number, each in enumerate(others):
        for kind in (PLANES, RESULT, INDEX):
            entry = Entry(
                packed_key(key(number)),
                kind,
                0,
                0,
                b"",
                b"",
                *numbers_of(content, [[len(content)]], [place_of(packed_key(key(number))) + kind]),
            )
            assert each.put([entry], [0], content, kind, [False])[0], f"nothing is left for number {number}"
    assert all(cache.room(kind, 1000) for kind in (PLANES, RESULT, INDEX)), "nothing was taken back"
    for each in others:
        each.flush()
        each.let_go()
    assert cache.used()[0] < 3 * 100 * 21_000, "what was not written was given back"


def test_what_is_worth_more_takes_room_back_and_never_the_reverse(folder: Path) -> None:
    cache = opened(folder, 6_000_000)
    number = 0
    while put(cache, number, PLANES, 9000):
        cache.flush()
        number += 1
    files = len(list((folder / folders.SEGMENTS).iterdir()))
    assert files > 1
    results = 0
    while results < 5000 and put(cache, results, RESULT, 9000):
        cache.flush()
        results += 1
    assert 6_000_000 / 20_000 < results < 400
    assert cache.used()[0] <= 6_000_000
    found = [cache.look(key(each)) for each in range(results)]
    assert all(each is not None and RESULT in each.entries for each in found[:-1])
    assert not any(PLANES in each.entries for each in found if each is not None)
    assert not put(cache, 9000, PLANES, 9000), "planes take nothing back"
    assert put(cache, 9000, INDEX), "an index does"
    cache.flush()
    assert right(cache, 9000) == 1
    assert size_of(folder / folders.SEGMENTS) <= 6_000_000


def test_who_reads_what_is_taken_back_is_told_so_and_counts_no_damage(folder: Path) -> None:
    cache = opened(folder, 3_000_000)
    number = 0
    while put(cache, number, PLANES, 9000):
        cache.flush()
        number += 1
    found = cache.look(key(0))
    assert found is not None
    entry = found.entries[PLANES]
    out = bytearray(entry.size)
    assert cache.read(entry, 0, 7, out)

    def other() -> bool:
        for each in range(200):
            put(cache, each, RESULT, 9000)
            cache.flush()
        return True

    cache._filling.let_go()
    assert in_child(other)()
    with fallbacks() as counted:
        assert not cache.read(entry, 0, 7, out)
    assert not counted
    assert cache.used()[0] <= 3_000_000


# -- the folder -----------------------------------------------------------------------------------------------


def test_the_folder_is_the_users_alone(folder: Path) -> None:
    filled(folder, 3)
    for path in (folder, *folder.rglob("*")):
        assert not path.stat().st_mode & 0o077, path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def refused(folder: Path, version: str = "test") -> str:
    with pytest.raises(Unusable) as error:
        Cache.open(folder, BUDGET, version=version)
    return str(error.value)


def test_a_folder_is_not_made_where_its_parent_is_missing(folder: Path) -> None:
    """As where a disk is not mounted: the system's own disk must not be filled in its place."""
    assert f"there is no {folder} to make it in (is a disk not mounted?)" in refused(folder / "accel")
    assert not folder.exists()


def test_an_empty_folder_is_taken_and_other_things_are_left_alone(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    assert opened(folder).put(key(1), b"", INDEX, b"x")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    other = folder.parent / "photos"
    other.mkdir()
    (other / "a.jpg").write_bytes(b"1")
    assert "other things in it, such as a.jpg" in refused(other)
    assert os.listdir(other) == ["a.jpg"]


@pytest.mark.parametrize("name", ["table.sqlite", "segments/00000001"])
def test_what_has_a_name_of_a_caches_and_is_none_is_left_alone(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    (folder / name).write_bytes(b"somebody's own")
    assert f"other things in it, such as {name}" in refused(folder)
    for look in (survey.survey, survey.verified, survey.clear):
        with pytest.raises(Unusable, match="there is no cache"):
            look(folder)
    assert (folder / name).read_bytes() == b"somebody's own"


def test_a_folder_that_others_may_enter_or_is_none_is_refused(folder: Path) -> None:
    filled(folder, 1).close()
    folder.chmod(0o750)
    assert "others may enter it" in refused(folder)
    folder.chmod(0o700)
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert "not a folder of this user's" in refused(link)
    file = folder.parent / "file"
    file.touch()
    assert "not a folder of this user's" in refused(file)


def test_another_versions_is_left_as_it_is(folder: Path) -> None:
    filled(folder, 3).close()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "it is of version 'test', not 'other'" in refused(folder, "other")
    assert before.items() <= {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}.items()
    assert right(opened(folder), 1) == 2


def test_another_versions_in_memory_begins_anew_unless_it_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(folders, "SHARED_MEMORY", tmp_path)
    folder = folders.in_memory()
    filled(folder, 3).close()
    user = folders.locked(folder / folders.IN_USE, exclusive=False)
    assert user is not None
    assert "it is of version 'test', not 'other'" in refused(folder, "other")
    os.close(user)
    assert opened(folder, version="other").look(key(1)) is None
    assert "begins anew (it was of version 'test', not 'other')" in caplog.text


MOUNTS = (
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "31 22 0:30 / {} rw shared:9 - {} server:/export rw\n"
    "40 31 0:41 / {}/local\\040disk rw - ext4 /dev/vdb rw\n"
)


@pytest.mark.parametrize(("kind", "expected"), [("nfs4", "nfs4"), ("cifs", "cifs"), ("xfs", None), ("tmpfs", None)])
def test_a_networks_file_system_is_told_by_its_mount(tmp_path: Path, kind: str, expected: str | None) -> None:
    mounts, at = tmp_path / "mountinfo", tmp_path / "data"
    mounts.write_text(MOUNTS.format(at, kind, at))
    network = folders._network
    assert network(at / "a" / "b", mounts) == network(at, mounts) == expected
    assert network(tmp_path / "data2", mounts) is None
    assert network(at / "local disk" / "c", mounts) is None
    assert network(at, tmp_path / "none") is None


def test_a_networks_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_network", lambda folder: "nfs4")
    assert "on a network (nfs4)" in refused(folder)
    assert not folder.exists()


def test_memory_is_shared_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(folders, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(folders.store, "left", lambda: 400_000_000)
    assert folders.in_memory() == tmp_path / f"accel-cache-{os.getuid()}"
    cache = Cache.open(None, 1 << 40, version="test")
    log.flush()
    assert f"the cache takes 300 MB, not 1.1e+06: {tmp_path} has no more" in caplog.text
    assert cache.used()[1] // 10**6 == 300, "and what the folder has itself"
    cache = Cache.open(None, 1000, version="test")
    assert cache.used() == (0, 1000)


# -- forks, and processes that are started otherwise ------------------------------------------------------------


def test_a_fork_has_no_connection_of_its_parents(folder: Path) -> None:
    cache = filled(folder, 5)
    assert right(cache, 1) == 2
    assert cache._table._connection is not None

    def child() -> bool:
        if cache._table._connection is not None or cache._filling._own or cache._filling._pieces:
            return False
        put(cache, 50, PLANES)
        cache.flush()
        return right(cache, 50) == 1

    put(cache, 60, PLANES)  # which the parent is to write
    assert in_child(child)()
    cache.flush()
    assert [right(cache, number) for number in (1, 50, 60)] == [2, 1, 1]


def test_forks_beside_threads_that_look_and_put(folder: Path) -> None:
    cache = filled(folder, 30)
    stop: list[Any] = []

    def work(seed: int) -> int:
        number = 0
        while not stop:
            cache._known.clear()
            right(cache, number % 30)
            put(cache, 1000 * seed + number, RESULT)
            cache.flush()
            number += 1
        return number

    def fork() -> bool:
        try:
            return all(in_child(lambda: all(right(cache, number) == 2 for number in range(30)))() for _ in range(25))
        finally:
            stop.append(None)

    assert in_threads([lambda: work(1), lambda: work(2), fork])[2]
    assert not cache._table.faults()


SPAWNED = """
import sys
from pathlib import Path
from accel.cache.cache import Cache
from tests.cache.kept import put, right
cache = Cache.open(Path(sys.argv[1]), 1 << 28, version="test")
print([right(cache, number) for number in range(20)] == [2] * 20)
put(cache, 90, 2)
"""


def test_a_process_of_its_own_shares_it_and_writes_what_waits_at_its_end(folder: Path) -> None:
    cache = filled(folder, 20)
    assert finished(started(SPAWNED, str(folder)))[:2] == (0, "True\n")
    assert right(cache, 90) == 1
