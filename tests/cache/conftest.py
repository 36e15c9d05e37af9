"""Where a test of a cache has its folder; every cache that it opens is closed after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cache.kept import close_all


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"
