"""Entries for the tests of a cache: which content belongs to which number, and whether what is found is that."""

import random
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import accel
from accel.cache import folder as folders
from accel.cache.cache import Cache
from accel.cache.entry import INDEX, PLANES, RESULT, File
from accel.system.memory import Key
from tests.support.processes import in_child

KINDS = {INDEX: 1, RESULT: 2, PLANES: 7}
"""And how many parts the tests' entries have."""
_POOL = random.Random(1).randbytes(1 << 20)
BUDGET = 1 << 28


def key(number: int) -> Key:
    return 7, number, 100_000 + number, number * 10**9, number * 10**9 + 1


def parts(number: int, kind: int, size: int = 900) -> list[bytes]:
    """Content that only this entry has."""
    starts = [
        (number * 7919 + kind * 104729 + part * 1299709) % (len(_POOL) - size - 99) for part in range(KINDS[kind])
    ]
    return [_POOL[start : start + size + start % 90] for start in starts]


def put(cache: Cache, number: int, kind: int, size: int = 900) -> bool:
    each = parts(number, kind, size)
    ends = list(accumulate(map(len, each)))
    return cache.put(key(number), b"file %d" % number, kind, b"".join(each), b"meta %d" % kind, ends)


def filled(folder: Path, count: int, budget: int = BUDGET) -> Cache:
    """A cache with so many files, of each an index and planes, in several segments and transactions."""
    cache = Cache.open(folder, budget, version="test")
    for number in range(count):
        assert put(cache, number, INDEX)
        assert put(cache, number, PLANES)
        if number % 16 == 7:
            cache.flush()
    cache.flush()
    return cache


def right(cache: Cache, number: int, size: int = 900) -> int:
    """How many entries of a file are found and can be read; raises AssertionError where one is not what was put."""
    found: File | None = cache.look(key(number))
    count = 0
    for kind, entry in found.entries.items() if found else ():
        expected = b"".join(parts(number, kind, size))
        assert (entry.header, entry.meta, entry.kind) == (b"file %d" % number, b"meta %d" % kind, kind)
        out = bytearray(b"\xab" * entry.size)
        if cache.read(entry, 0, len(entry.ends), out):
            assert bytes(out) == expected
            count += 1
    return count


@contextmanager
def fallbacks() -> Iterator[dict[str, int]]:
    """What was counted as a fallback inside the block; there once it is over."""
    before, found = accel.stats()["fallbacks"], dict[str, int]()
    yield found
    found |= {
        name: n - before.get(name, 0) for name, n in accel.stats()["fallbacks"].items() if n > before.get(name, 0)
    }


def opened(folder: Path, budget: int = BUDGET, version: str = "test") -> Cache:
    """The cache in a folder, in this process."""
    return Cache.open(folder, budget, version=version)


def number_of(some: int, every: int) -> Any:
    """How many times something is tried, as ``times``: some, or all where sweeps are asked for."""
    return pytest.mark.parametrize(
        "times", [pytest.param(some, id="some"), pytest.param(every, id="all", marks=pytest.mark.sweep)]
    )


def in_child_shown(function: Callable[[], bool]) -> bool:
    """The function's result in a child, which prints what it raises."""

    def shown() -> bool:
        try:
            return function()
        except BaseException:
            traceback.print_exc()
            return False

    return in_child(shown)()


def changed(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / folders.TABLE)
    with connection:
        connection.execute(statement)
    connection.close()
