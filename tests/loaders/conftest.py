"""A cache's option, and a process that knows nothing of any pipeline yet."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from accel.cache.worth import Worth
from accel.planning.prefix import Prefixes
from accel.runtime.memo import result_lookup
from accel.system import memory
from tests.support import cached, helpers
from tests.support.cached import COUNT


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The option of a new cache."""
    return f"{tmp_path / 'cache'}:64MB"


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are known however young; nothing is known of any pipeline, nor measured: entries are worth keeping."""
    monkeypatch.setattr(Worth, "of", lambda self, shelf: None)
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    monkeypatch.setattr(result_lookup, "prefixes", Prefixes())
    monkeypatch.setattr(result_lookup, "_again", cycle([True]))


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The files that this process opens."""
    cached.opened.clear()
    cached.listening = True
    yield cached.opened
    cached.listening = False


def encoded(number: int) -> bytes:
    options = ({"subsampling": 0}, {"subsampling": 2}, {"restart_marker_blocks": 7})[number % 3]
    mode = "L" if number == 4 else "RGB"
    return helpers.jpeg(160 + 8 * (number % 4), 120 + 10 * (number % 3), mode, seed=number, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of files, as ``ImageFolder`` has them."""
    for number in range(COUNT):
        path = tmp_path / "data" / f"class{number % 2}" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(number))
    return tmp_path / "data"


@pytest.fixture
def files(folder: Path) -> list[str]:
    return sorted(map(str, folder.rglob("*.jpg")))
