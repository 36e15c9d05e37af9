"""``python -m accel cache``: lists, verifies, clears; and says why not."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from accel.__main__ import main
from accel.cache import cache as caches
from accel.cache import folder as folders
from tests.cache.kept import filled, right
from tests.support.processes import linux

pytestmark = linux


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache of 20 files, which nobody uses."""
    filled(tmp_path / "cache", 20).close()
    caches._opened.clear()
    yield tmp_path / "cache"
    for cache in caches._opened.values():
        cache.close()
    caches._opened.clear()


def test_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "list", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "| stream indexes | 20 | 1 | 0.0 |" in shown
    assert "| planes | 20 | 1 | 0.1 |" in shown
    assert "20 files" in shown
    assert "version 1 test" in shown


def test_verify_finds_what_is_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "verify", str(folder)]) == 0
    assert "all 40 entries are sound" in capsys.readouterr().out
    path = folder / folders.SEGMENTS / "00000002"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    assert main(["cache", "verify", str(folder)]) == 1
    shown = capsys.readouterr().err
    assert "1 of 40 entries are damaged" in shown
    assert "1 of 7 parts are damaged" in shown
    os.truncate(path, 5000)
    assert main(["cache", "verify", str(folder)]) == 1
    assert "segment 2 is too short" in capsys.readouterr().err


def test_clear_empties_it_unless_it_is_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = filled(folder, 20)
    assert main(["cache", "clear", str(folder)]) == 2
    assert "processes use it" in capsys.readouterr().err
    assert right(cache, 3) == 2
    cache.close()
    caches._opened.clear()
    assert main(["cache", "clear", str(folder)]) == 0
    assert "MB removed" in capsys.readouterr().out
    assert main(["cache", "list", str(folder)]) == 2
    assert "the cache is empty" in capsys.readouterr().err
    assert right(filled(folder, 3), 1) == 2, "and it is used again"


def test_other_folders_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1")
    for action in ("list", "verify", "clear"):
        assert main(["cache", action, str(tmp_path)]) == 2
        assert "there is no cache" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["a.jpg"]


def test_the_users_own_is_the_default(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "in_memory", lambda: folder)
    assert main(["cache"]) == 0
    assert "20 files" in capsys.readouterr().out
