"""Images for the tests of this folder, and time that goes by as they say."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from accel.system.timing import clocks
from tests.profiling.measure import EACH
from tests.support import helpers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helpers.write_image_folder(tmp_path_factory.mktemp("images"), EACH)


class Clock:
    """Time in which only naps take long, and whoever looks a little."""

    def __init__(self) -> None:
        self.ns = 1_000_000

    def __call__(self) -> int:
        self.ns += 1000
        return self.ns

    def nap(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only naps take time, whatever else the machine does meanwhile."""
    clock = Clock()
    monkeypatch.setattr(clocks, "now", clock)
    monkeypatch.setattr(time, "sleep", clock.nap)
