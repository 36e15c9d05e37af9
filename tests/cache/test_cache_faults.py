"""A cache under attack: whoever is killed, whatever the system refuses: no wrong byte, no death, no hang, no error."""

import ctypes
import errno
import os
import random
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accel.cache import budget
from accel.cache import folder as folders
from accel.cache.cache import Cache
from accel.cache.entry import INDEX, PLANES, RESULT
from accel.cache.folder import Unusable
from accel.cache.segments import Segments
from accel.cache.table import Table
from tests.cache.kept import (
    KINDS,
    fallbacks,
    filled,
    in_child_shown,
    number_of,
    opened,
    put,
    right,
)
from tests.support import inside
from tests.support.processes import descriptors, in_child, killed, linux

pytestmark = linux
FILES = 40


# -- killed -----------------------------------------------------------------------------------------------------


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
    assert table.read(budget.used) > before, "it had claimed some"
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
            try:
                cache = opened(folder)
            except Unusable as error:
                return "full" in str(error) or "No space" in str(error)
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
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (cut, hard))
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
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        own._known.clear()
        return sum(right(own, number) for number in range(8)) > 0

    assert in_child_shown(few)


def test_a_folder_that_is_replaced_is_left_to_who_replaced_it(folder: Path, tmp_path: Path) -> None:
    cache = filled(folder, 4)
    folder.rename(tmp_path / "old")

    def other() -> bool:
        inside.forget_caches()
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

    for number in range(60):
        put(cache, number, PLANES, 9000)
        cache.flush()
    before = descriptors()
    for number in range(200):
        put(cache, number, RESULT, 9000)
        cache.flush()
    assert cache.used()[0] <= 2_000_000
    assert descriptors() <= before + 1, "each kind has a segment"
