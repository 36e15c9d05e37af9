"""The store of entries that processes share: what is found is what was put, whoever was killed or wrote beside it."""

import gc
import mmap
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch

from accel.codec import store, store_fields
from accel.codec.files import reader
from accel.codec.store import Keys, Store
from accel.system import memory
from accel.system.content import key_of_content
from accel.system.memory import Key, key_of
from accel.system.timing import measuring
from tests.support import inside
from tests.support.processes import descriptors, in_child, in_threads, killed, linux

pytestmark = linux
MANY = [pytest.param(4, id="some"), pytest.param(300, id="all", marks=pytest.mark.sweep)]


def made(size: int = 1 << 21) -> Store:
    return Store(mmap.mmap(memory.anonymous_file(size), size))


def key(number: int) -> Key:
    return 7, number, 100_000 + number, number * 10**9, number * 10**9 + 1


def content(number: int, version: int = 0, size: int = 0) -> Any:
    """What begins with a checksum of what follows, and of the key."""
    drawn = random.Random(f"{number} {version}")
    body = drawn.randbytes(8 * (size or 20 + number * 37 % 300))
    return np.frombuffer(crc32(body, number).to_bytes(8, "little") + body, np.uint8)


def put(entries: Store, number: int, version: int = 0) -> bool:
    return entries.put(key(number), content(number, version)) >= store_fields.REPLACED


def got(entries: Store, number: int) -> bytes | None:
    out = np.full(1 << 20, 171, np.uint8)
    sizes: list[int] = []

    def room(size: int) -> Any:
        sizes.append(size)
        return out[:size]

    if not entries.get(key(number), room):
        return None
    found = out[: sizes[0]].tobytes()
    return found if crc32(found[8:], number) == int.from_bytes(found[:8], "little") else None


def of(number: int, versions: int = 1) -> set[bytes | None]:
    """What may be found of an entry."""
    return {None, *(content(number, version).tobytes() for version in range(versions))}


def test_what_is_put_is_found_and_a_later_one_takes_its_place() -> None:
    entries = made()
    assert got(entries, 3) is None
    assert all(put(entries, number) for number in range(500))
    assert [got(entries, number) for number in range(500)] == [content(number).tobytes() for number in range(500)]
    used = entries.used()
    assert all(put(entries, number, 1) for number in range(500))
    assert [got(entries, number) for number in range(500)] == [content(number, 1).tobytes() for number in range(500)]
    assert entries.used() == used
    assert got(entries, 500) is None


def test_an_entry_of_another_size_takes_the_place_of_one() -> None:
    entries = made()
    for number in range(40):
        put(entries, number)
    other = content(5, size=1000)
    assert entries.put(key(5), other) == store_fields.REPLACED
    assert got(entries, 5) == other.tobytes()
    assert got(entries, 4) == content(4).tobytes()


def test_entries_are_told_apart_by_every_part_of_the_key() -> None:
    entries = made()
    put(entries, 3)
    for part in range(5):
        other = list(key(3))
        other[part] += 1
        assert not entries.has(tuple(other))  # type: ignore[arg-type]
    assert entries.has(key(3))


def test_keys_of_content_are_keys_as_well() -> None:
    entries, other = made(), key_of_content(bytes(1 << 12))
    assert other is not None
    assert entries.put(other, content(3)) == store_fields.ADDED
    assert entries.has(other)


def test_a_full_store_keeps_what_it_has_and_stays_within_its_memory() -> None:
    file = memory.anonymous_file(1 << 20)
    entries = Store(mmap.mmap(file, 1 << 20))
    kept = [number for number in range(3000) if put(entries, number)]
    assert 200 < len(kept) < 3000
    assert kept[:200] == list(range(200))
    used, size = entries.used()
    assert used == size < 1 << 20
    assert all(got(entries, number) == content(number).tobytes() for number in kept)
    assert os.fstat(file).st_blocks * 512 <= 1 << 20


def test_slots_that_run_out_are_no_error() -> None:
    entries = made(1 << 22)
    states = [entries.put(key(number), bytes(8)) for number in range(9000)]
    assert 4000 < states.count(store_fields.ADDED) < 9000
    assert states.count(store_fields.FULL) == 0
    assert [entries.has(key(number)) for number in range(9000)] == [state == store_fields.ADDED for state in states]


def test_a_few_entries_take_few_pages() -> None:
    file = memory.anonymous_file(1 << 33)
    entries = Store(mmap.mmap(file, 1 << 33))
    sizes = sum(len(content(number)) for number in range(200) if put(entries, number))
    assert os.fstat(file).st_blocks * 512 < sizes + 200 * 48 + (1 << 16)


def test_an_entry_larger_than_a_segment() -> None:
    entries = made()
    large = content(1, size=10_000)
    assert entries.put(key(1), large) == store_fields.ADDED
    assert put(entries, 2)
    assert (got(entries, 1), got(entries, 2)) == (large.tobytes(), content(2).tobytes())
    assert entries.put(key(3), bytes(1 << 21)) == store_fields.FULL
    assert put(entries, 4), "there is room for what is smaller"


def test_room_that_is_smaller_than_an_entry_gets_none() -> None:
    entries = made()
    put(entries, 1)
    assert not entries.get(key(1), lambda size: np.empty(0, np.uint8))


def test_many_at_once_are_as_one_by_one() -> None:
    """Also with keys that cannot be trusted, files that are not there, and entries beyond the room made at first."""
    numbers, entries, others = list(range(40)), made(), made()
    sizes = [9000 if number == 3 else 0 for number in numbers]
    contents = [content(number, size=size) for number, size in zip(numbers, sizes, strict=True)]
    keys = Keys.of([None if number % 7 == 5 else key(number) for number in numbers])
    ends = np.cumsum([len(each) for each in contents])
    for version in range(2):
        became = entries.put_all(keys, np.concatenate(contents), ends)
        trusted = [number for number in numbers if number % 7 != 5]
        assert became.tolist() == [others.put(key(number), contents[number]) for number in trusted], version
    assert [got(entries, number) for number in numbers] == [got(others, number) for number in numbers]

    asked = [*range(30, 60), *range(30)]
    found, ends = entries.get_all(Keys.of([None if number % 7 == 5 else key(number) for number in asked]))
    assert ends[-1] == len(found)
    for number, each in zip(asked, np.split(found, ends[:-1]), strict=True):
        assert each.tobytes() == (got(others, number) or b"")


# -- faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flips", [pytest.param(400, id="some"), pytest.param(10_000, id="all", marks=pytest.mark.sweep)]
)
def test_flipped_bits_lose_entries_and_change_none(flips: int) -> None:
    size, drawn = 1 << 20, random.Random(1)
    block = mmap.mmap(-1, size)
    entries = Store(block)
    for number in range(60):
        put(entries, number)
    touched = [place for place in range(size) if block[place]]
    lost = 0
    for _ in range(flips):
        place = drawn.choice(touched) if drawn.random() < 0.8 else drawn.randrange(size)
        before = block[place]
        block[place] ^= 1 << drawn.randrange(8)
        number = drawn.randrange(60)
        found = [got(entries, each) for each in (range(60) if drawn.random() < 0.1 else [number])]
        for each, value in zip(range(60) if len(found) == 60 else [number], found, strict=True):
            assert value in of(each, 2)
            lost += value is None
        put(entries, 60 + drawn.randrange(20))  # writing goes on, wherever that leads
        if drawn.random() < 0.5:
            block[place] = before
    assert lost > 0, "nothing that was flipped mattered"


@pytest.mark.parametrize("times", MANY)
def test_killed_writers_leave_nothing_half_made(times: int) -> None:
    entries, drawn = made(1 << 24), random.Random(2)
    contents = [[content(number, version) for version in range(4)] for number in range(300)]
    began = 0

    def write(begun: Callable[[], object]) -> None:
        begun()
        entries.begin()
        while True:
            number = drawn.randrange(300)
            entries.put(key(number), contents[number][drawn.randrange(4)])

    for time_ in range(times):
        drawn.seed(time_)
        killed(write, 0.001 * drawn.randrange(2, 12))
        began += entries.used()[0] > 0
        assert all(got(entries, number) in of(number, 4) for number in range(300))
    assert began
    for number in range(300):  # and nobody is in anybody's way
        assert put(entries, number)
        assert got(entries, number) == content(number).tobytes()


@pytest.mark.parametrize("times", [pytest.param(20, id="some"), pytest.param(2000, id="all", marks=pytest.mark.sweep)])
def test_a_writer_that_stops_anywhere_leaves_nothing_half_made(times: int) -> None:
    """Any of the words that it writes may have arrived, and others not: nobody says in which order they do."""
    drawn = np.random.default_rng(4)
    for _ in range(times):
        entries = made()
        for number in range(4):
            put(entries, number)
        words = entries.layout.words
        for number, version in ((9, 0), (2, 1), (9, 1)):
            before = words.copy()
            put(entries, number, version)
            written = np.flatnonzero(words != before)
            lost = written[drawn.random(len(written)) < drawn.random()]
            words[lost] = before[lost]
            entries.begin()  # the writer is gone
            assert got(entries, number) in of(number, 2)
        assert all(got(entries, number) in of(number) - {None} for number in (0, 1, 3))
        assert all(
            put(entries, number, 1) and got(entries, number) in of(number, 2) - of(number) for number in range(10)
        )


@pytest.mark.parametrize("times", [pytest.param(1, id="some"), pytest.param(20, id="all", marks=pytest.mark.sweep)])
def test_several_processes_write_and_read_the_same(times: int) -> None:
    for _ in range(times):
        entries = made(1 << 23)
        contents = [[content(number, version) for version in range(3)] for number in range(200)]
        allowed = [of(number, 3) for number in range(200)]

        def work(seed: int, entries: Store = entries, contents: Any = contents, allowed: Any = allowed) -> bool:
            entries.begin()
            drawn = random.Random(seed)
            for _ in range(3000):
                number = drawn.randrange(200)
                if got(entries, number) not in allowed[number]:
                    return False
                if entries.put(key(number), contents[number][drawn.randrange(3)]) < store_fields.REPLACED:
                    return False
            return True

        children = [in_child(lambda seed=seed: work(seed)) for seed in range(3)]  # type: ignore[misc]
        assert all(child() for child in children)
        found = [got(entries, number) for number in range(200)]
        assert all(value in allowed[number] for number, value in enumerate(found))
        assert sum(value is not None for value in found) > 190, "they are in each other's way"


def test_no_two_threads_fill_one_segment() -> None:
    entries = made(1 << 24)
    numbers = range(800)

    def fill(first: int) -> bool:
        return all(put(entries, number) for number in numbers[first::8])

    assert all(in_threads([lambda first=first: fill(first) for first in range(8)]))  # type: ignore[misc]
    assert [got(entries, number) for number in numbers] == [content(number).tobytes() for number in numbers]


def shares() -> None:
    store.share(memory.anonymous_file(1 << 20), 1 << 20)


def measures() -> None:
    block = measuring.share(own=True)
    assert block is not None
    measuring.join(memory.shared(block.shape, torch.uint8, sparse=True))


@pytest.mark.parametrize("share", [shares, measures])
def test_no_descriptor_is_closed_that_has_become_anothers(share: Callable[[], None]) -> None:
    """Daemons close all descriptors, whose numbers files then have that they open."""

    def numbers() -> set[int]:
        return {int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}

    def child() -> bool:
        before = numbers()
        share()
        own = numbers() - before
        with open(os.devnull) as other:
            for number in own:
                os.dup2(other.fileno(), number)
        share()
        gc.collect()
        return bool(own) and own <= numbers()

    assert in_child(child)()


# -- keys ---------------------------------------------------------------------------------------------------


def test_a_key_is_of_the_file_however_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    path = tmp_path / "a"
    path.write_bytes(b"1234")
    os.link(path, tmp_path / "b")
    (tmp_path / "c").symlink_to(path)
    keys = {reader.read(tmp_path / name).key for name in "abc"}  # type: ignore[union-attr]
    assert len(keys) == 1
    assert None not in keys


def test_a_key_tells_of_every_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"1234")
    before = path.stat()
    keys = [key_of(path.stat())]

    def changed() -> None:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns
        keys.append(key_of(path.stat()))
        time.sleep(0.02)  # the clock of a file system ticks

    time.sleep(0.02)
    path.write_bytes(b"5678")
    changed()
    other.write_bytes(b"5678")
    other.replace(path)
    changed()
    path.write_bytes(b"567")
    changed()
    assert None not in keys
    assert len(set(keys)) == len(keys)


def status(written: float, changed: float) -> Any:
    return type("Status", (), {
        **dict.fromkeys(("st_dev", "st_ino", "st_size"), 1),
        "st_mtime_ns": int(written * 1e9),
        "st_ctime_ns": int(changed * 1e9),
    })  # fmt: skip


def test_times_that_cannot_be_trusted_give_no_key() -> None:
    now = time.time()
    assert key_of(status(now - 3, now - 3)) is not None
    assert key_of(status(now - 90, now - 3)) is not None
    assert key_of(status(0, now - 3)) is not None, "as packed files have it"
    for written, changed in ((now, now), (now - 90, now - 1), (now + 9, now + 9), (now - 9, now - 90), (-9, now - 90)):
        assert key_of(status(written, changed)) is None


# -- the budget ---------------------------------------------------------------------------------------------


GIB = str(1 << 30)


@pytest.mark.parametrize(
    ("lines", "names", "expected"),
    [
        ("0::/job\n", {"job": ("max", "0", ""), "": ()}, 8 << 30),
        ("0::/job\n", {"job": (GIB, "4096", "anon 1\nactive_file 1024\ninactive_file 1024")}, (1 << 30) - 2048),
        ("4:memory:/job\n", {"job": (GIB, "4096", "inactive_file 7\ntotal_inactive_file 4096")}, 1 << 30),
        ("4:memory:/a/job\n", {"a/job": (f"{9 << 30}", "0", ""), "a": (GIB, "4096", "")}, (1 << 30) - 4096),
        ("0::/job\n", {"job": (GIB, f"{2 << 30}", "")}, 0),
    ],
)  # fmt: skip
def test_what_is_left_of_memory(lines: str, names: dict[str, tuple[str, ...]], expected: int, tmp_path: Path) -> None:
    own, meminfo = tmp_path / "own", tmp_path / "meminfo"
    own.write_text(lines)
    meminfo.write_text(f"MemTotal: 1 kB\nMemAvailable: {8 << 20} kB\nBuffers: 1 kB\n")
    older = "memory:" in lines
    files = ("memory.limit_in_bytes", "memory.usage_in_bytes") if older else ("memory.max", "memory.current")
    for name, texts in names.items():
        folder = tmp_path / "groups" / ("memory" if older else "") / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in zip((*files, "memory.stat"), texts, strict=False):
            (folder / file).write_text(text)
    assert store.left(meminfo, own=own, root=tmp_path / "groups") == expected


def test_what_is_left_is_unknown_where_nothing_can_be_read(tmp_path: Path) -> None:
    assert store.left(tmp_path / "none") is None


def test_threads_that_come_and_go_fill_one_segment() -> None:
    entries = made()
    for number in range(12):
        thread = threading.Thread(target=put, args=(entries, number))
        thread.start()
        thread.join()
    assert [got(entries, number) for number in range(12)] == [content(number).tobytes() for number in range(12)]
    needed = sum(48 + len(content(number)) for number in range(12))
    assert entries.used()[0] <= needed + 2 * (1 << 14)


def test_memory_that_cannot_be_had_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    with pytest.raises(OSError):
        memory.anonymous_file(-1)
    inside.no_store(monkeypatch, tried=False)
    monkeypatch.setattr(store, "left", lambda: 1 << 30)
    monkeypatch.setattr(store.mmap, "mmap", refused)
    monkeypatch.setattr(store.counters, "fallback", list[str]().append)  # the first one opens a file of its own
    store.prepare()
    assert descriptors() == before


def refused(*_: Any) -> None:
    raise OSError("no memory")
