"""Where a test of a cache has its folder; every cache that it opens is closed after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import inside


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    inside.close_caches()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"
