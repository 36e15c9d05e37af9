"""A cache under attack: whoever is killed, whatever is flipped, or full: no wrong byte, no death, no hang, no error."""

import ctypes
import errno
import os
import random
import resource
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import accel
from accel.cache import cache as caches
from accel.cache import entry as entries
from accel.cache import folder as folders
from accel.cache.cache import Cache
from accel.cache.entry import INDEX, PLANES, RESULT
from accel.cache.faults import ENTRY
from accel.cache.segments import Segments, name_of
from accel.cache.table import Table
from tests.cache.kept import BUDGET, KINDS, fallbacks, filled, key, put, right
from tests.support.processes import in_child, linux

pytestmark = linux
FILES = 40


def number_of(some: int, every: int) -> Any:
    return pytest.mark.parametrize(
        "times", [pytest.param(some, id="some"), pytest.param(every, id="all", marks=pytest.mark.sweep)]
    )


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Every cache that a test opens is closed after it."""
    yield
    close_all()


def close_all() -> None:
    for cache in caches._opened.values():
        cache.close()
    caches._opened.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def in_child_shown(function: Callable[[], bool]) -> bool:
    """The function's result in a child, which prints what it raises."""

    def shown() -> bool:
        try:
            return function()
        except BaseException:
            traceback.print_exc()
            return False

    return in_child(shown)()


def opened(folder: Path) -> Cache:
    cache = Cache.open(folder, BUDGET, version="test")
    assert cache is not None, accel.stats()["fallbacks"]
    return cache


# -- flipped bytes ----------------------------------------------------------------------------------------------


def copied(folder: Path, to: Path) -> list[Path]:
    """A copy of a cache that is in use, with its log and the index of that; its files that have content."""
    filled(folder, FILES)
    shutil.copytree(folder, to)
    close_all()
    return [path.relative_to(to) for path in to.rglob("*") if path.is_file() and path.stat().st_size]


def flip(path: Path, drawn: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[drawn.randrange(len(content))] ^= drawn.choice([1 << drawn.randrange(8), drawn.randrange(1, 256)])
    path.write_bytes(content)


def used_by_a_child(folder: Path) -> int:
    """How many entries a process finds that goes on to fill the cache; raises where it dies, hangs or errs."""
    reader, writer = os.pipe()

    def use() -> bool:
        cache = Cache.open(folder, BUDGET, version="test")
        found = sum(right(cache, number) for number in range(FILES)) if cache is not None else 0
        if cache is not None:
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
    ("module", "name", "only"), [(caches, "sound_parts", "0000"), (entries, "crc32", "table.sqlite")]
)
def test_a_check_that_is_not_made_would_be_noticed(
    module: Any, name: str, only: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attacked(3, folder, tmp_path / "sound", 40, only)
    close_all()
    shutil.rmtree(folder)
    monkeypatch.setattr(module, name, lambda *given: True)
    with pytest.raises(AssertionError):
        attacked(6, folder, tmp_path / "again", 40, only)


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
        caches._opened.clear()
        return Cache.open(folder, BUDGET, version="test") is None  # for this process has it open

    assert in_child(other)()
    cache.close()
    assert right(opened(folder), 1) == 0
    assert "begins anew" in caplog.text
    assert right(filled(folder, 3), 1) == 2


# -- killed -----------------------------------------------------------------------------------------------------


def killed(work: Callable[[Callable[[], Any]], Any], after: float) -> None:
    """Have a child of a group of its own work, and kill the group some time after it has called what it is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, since Python 3.12
        begins, says = os.pipe()
        pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            work(lambda: os.write(says, b"!"))
        finally:
            os._exit(1)
    os.close(says)
    os.read(begins, 1)
    os.close(begins)
    time.sleep(after)
    os.killpg(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL, "it ended by itself"


def fill(folder: Path, seed: int, begun: Callable[[], Any], workers: int = 0) -> None:
    """Fill a cache for ever, with workers of its own, and read what others put."""
    drawn = random.Random(seed)
    if seed % 2:
        begun()  # to be killed while it opens the cache, perhaps
    cache = opened(folder)
    put(cache, 1, RESULT)
    cache.flush()
    if seed % 2 == 0:
        begun()
    for worker in range(workers):
        if os.fork() == 0:
            drawn, workers = random.Random(f"{seed} {worker}"), 0
            break
    while True:
        for kind in KINDS:
            put(cache, drawn.randrange(5000), kind)
        if drawn.random() < 0.2:
            cache.flush()
        right(cache, drawn.randrange(5000))


@number_of(12, 1000)
def test_killed_runs_leave_nothing_half_made(times: int, folder: Path) -> None:
    drawn = random.Random(3)
    for time_ in range(times):
        after = 0.001 * drawn.randrange(1, 40 if time_ % 2 else 120)
        killed(lambda begun: fill(folder, time_, begun, time_ % 3), after)  # noqa: B023  called at once

        def check() -> bool:
            with fallbacks() as counted:
                cache = opened(folder)
                for number in range(5000 if time_ % 10 == 0 else 50):  # noqa: B023
                    right(cache, number)
                put(cache, 6000 + time_, INDEX)  # noqa: B023
                cache.flush()
                there = right(cache, 6000 + time_)  # noqa: B023
            assert not counted
            assert not cache._table.faults()
            return there == 1

        if not in_child_shown(check):
            pytest.fail(f"time {time_}")
    cache = opened(folder)
    used, _ = cache.used()
    assert [right(cache, 6000 + number) for number in range(times)] == [1] * times
    assert right(cache, 1)
    assert sum(path.stat().st_size for path in (folder / folders.SEGMENTS).iterdir()) < used * 1.2 + (1 << 20)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("when", ["write", "add"])
def test_what_a_killed_writer_had_claimed_is_the_next_ones(folder: Path, when: str, alone: bool) -> None:
    cache = filled(folder, 4)
    before, _ = cache.used()
    cache.close()

    def work() -> bool:
        own = opened(folder)

        def killing(*given: Any) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)

        if when == "write":
            own._segments.write = killing  # type: ignore[method-assign]
        else:
            own._table.add = killing  # type: ignore[method-assign]
        for number in range(100, 120):
            put(own, number, PLANES)
        own.flush()
        return True

    assert not in_child(work)()
    table = Table(folder / folders.TABLE, writable=True)
    assert table.used() > before, "it had claimed some"
    table.close()
    other = None if alone else folders.locked(folder / folders.IN_USE, exclusive=False)
    cache = opened(folder)
    if other is not None:
        assert cache.used()[0] > before, "which may be another's who is at it"
        os.close(other)
    else:
        assert cache.used()[0] == before
    assert not any(right(cache, number) for number in range(100, 120))
    put(cache, 200, PLANES)
    cache.flush()
    assert right(cache, 200) == 1
    assert before < cache.used()[0] < before + 12_000
    assert [right(cache, number) for number in range(4)] == [2] * 4
    assert len(list((folder / folders.SEGMENTS).iterdir())) == 2


def test_files_of_no_segment_are_removed(folder: Path) -> None:
    filled(folder, 2).close()
    (folder / folders.SEGMENTS / "00000077").write_bytes(b"of one that was being taken back")
    assert right(opened(folder), 1) == 2
    assert not (folder / folders.SEGMENTS / "00000077").exists()


def test_two_runs_fill_one_at_once(folder: Path) -> None:
    def run(seed: int) -> bool:
        cache = opened(folder)  # each makes it, or finds it made
        drawn = random.Random(seed)
        for _ in range(400):
            for kind in KINDS:
                put(cache, drawn.randrange(300), kind)
            right(cache, drawn.randrange(300))
            if drawn.random() < 0.3:
                cache.flush()
        cache.close()
        return True

    begin, runs = os.pipe(), []
    for seed in range(3):
        runs.append(in_child(lambda seed=seed: bool(os.read(begin[0], 1)) and run(seed)))  # type: ignore[misc]
    os.write(begin[1], b"xxx")
    assert all(each() for each in runs)
    cache = opened(folder)
    assert sum(right(cache, number) for number in range(300)) > 800
    assert not cache._table.faults()


# -- what the system refuses -------------------------------------------------------------------------------------

_NEWNS, _RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18


def mounted(*how: tuple[bytes | None, Path, bytes | None, int, bytes | None]) -> None:
    """Mount something, for this process alone.

    Raises:
        PermissionError: it may not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNS):
        raise PermissionError
    for source, target, kind, flags, options in ((None, Path("/"), None, _REC | _PRIVATE, None), *how):
        if libc.mount(source, os.fsencode(target), kind, flags, options):
            raise PermissionError(os.strerror(ctypes.get_errno()))


def may_mount() -> bool:
    def attempt() -> bool:
        mounted()
        return True

    return in_child(attempt)()


def goes_on(cache: Cache, *reasons: str) -> bool:
    """Whether a process that cannot write goes on, says why, once, and still reads."""
    with fallbacks() as counted:
        kept = [number for number in range(100, 2000) if put(cache, number, PLANES)]
        cache.flush()
        for _ in range(2):
            assert not put(cache, 9000, INDEX)
            cache.flush()
    [said] = counted
    assert "nothing more is written to the cache" in said
    assert any(reason in said for reason in reasons)
    assert counted[said] == 1
    return len(kept) < 1900


def test_a_full_disk(folder: Path) -> None:
    if not may_mount():
        pytest.skip("needs the right to mount")
    folder.mkdir(mode=0o700)

    def full() -> bool:
        mounted((b"tmpfs", folder, b"tmpfs", 0, b"size=2m,mode=0700"))
        cache = filled(folder, 8)
        found = goes_on(cache, "No space left on device", "disk is full")
        return found and [right(cache, number) for number in range(8)] == [2] * 8

    assert in_child_shown(full)


def test_a_disk_that_is_full_from_the_beginning(folder: Path) -> None:
    if not may_mount():
        pytest.skip("needs the right to mount")
    folder.mkdir(mode=0o700)

    def full() -> bool:
        mounted((b"tmpfs", folder, b"tmpfs", 0, b"size=4k,mode=0700"))
        with fallbacks() as counted:
            cache = Cache.open(folder, BUDGET, version="test")
            if cache is not None:
                put(cache, 1, PLANES)
                cache.flush()
        return len(counted) == 1

    assert in_child_shown(full)


def test_a_file_system_that_takes_no_larger_files(folder: Path) -> None:
    def limited() -> bool:
        cache = filled(folder, 8)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        with fallbacks() as counted:
            for number in range(100, 2000):
                put(cache, number, PLANES)
            cache.flush()
        assert len(counted) == 1, counted
        return [right(cache, number) for number in range(8)] == [2] * 8

    assert in_child_shown(limited)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_writes_that_fail(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    cache = filled(folder, 8)
    used = cache.used()

    def failing(*given: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Segments, "write", failing)
    assert goes_on(cache, os.strerror(code))
    assert cache.used() == used
    assert [right(cache, number) for number in range(8)] == [2] * 8


def test_a_read_only_folder_is_read(folder: Path) -> None:
    if not may_mount():
        pytest.skip("needs the right to mount")
    filled(folder, 8).close()

    def read() -> bool:
        path = os.fsencode(folder)
        mounted((path, folder, None, _BIND, None), (None, folder, None, _BIND | _REMOUNT | _RDONLY, None))
        with fallbacks() as counted:
            cache = opened(folder)
            found = [right(cache, number) for number in range(8)]
            kept = put(cache, 9, INDEX) or cache.room(INDEX, 1)
            cache.flush()
        [said] = counted
        return found == [2] * 8 and not kept and "the folder is read-only" in said

    assert in_child_shown(read)


def test_no_descriptors_are_left(folder: Path) -> None:
    cache = filled(folder, 8)
    cache.close()

    def few() -> bool:
        own = opened(folder)
        cut = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (cut, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        held = []
        while True:
            try:
                held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        for number in range(8):
            right(own, number)
            put(own, 100 + number, INDEX)
        own.flush()
        for file in held:
            os.close(file)
        own._known.clear()
        return sum(right(own, number) for number in range(8)) > 0

    assert in_child_shown(few)


def test_a_folder_that_is_replaced_is_left_to_who_replaced_it(folder: Path, tmp_path: Path) -> None:
    cache = filled(folder, 4)
    folder.rename(tmp_path / "old")

    def other() -> bool:
        caches._opened.clear()
        return [right(filled(folder, 3), number) for number in range(4)] == [2, 2, 2, 0]

    assert in_child(other)()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with fallbacks() as counted:
        for number in range(30):
            put(cache, number, RESULT)
            cache.flush()
            right(cache, number)
    assert any("another folder has its name now" in reason for reason in counted)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_locks_and_descriptors_are_given_back(folder: Path) -> None:
    cache = Cache.open(folder, 2_000_000, version="test")
    assert cache is not None

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    for number in range(60):
        put(cache, number, PLANES, 9000)
        cache.flush()
    before = descriptors()
    for number in range(200):
        put(cache, number, RESULT, 9000)
        cache.flush()
    assert cache.used()[0] <= 2_000_000
    assert descriptors() <= before + 1, "each kind has a segment"
