"""Imports at first use, and the numbers that others draw from Python's ``random`` meanwhile."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from accel.system.imports import LazyModule

_SLOW = """
from random import getrandbits
import time
drawn = [getrandbits(24) for _ in range({count})]
time.sleep(0.2)
"""


@pytest.mark.parametrize("count", [0, 3])
def test_an_import_neither_draws_nor_has_numbers_drawn_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    name = f"slow_and_draws_{count}"
    (tmp_path / f"{name}.py").write_text(_SLOW.format(count=count))
    monkeypatch.syspath_prepend(tmp_path)
    draw, begun, over, found = random.getrandbits, threading.Event(), threading.Event(), list[int]()

    def other() -> None:
        while not over.wait(0.001):
            found.append(random.getrandbits(32))
            begun.set()

    random.seed(7)
    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    assert len(LazyModule(name, draws=count > 0).drawn) == count
    over.set()
    thread.join()
    found.append(random.getrandbits(32))
    stream = random.Random(7)
    assert len(found) > 2
    assert found == [stream.getrandbits(32) for _ in found]
    assert random.getrandbits == draw
