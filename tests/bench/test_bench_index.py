"""``python -m bench.index``: epochs are compared, and memory that processes share is counted once."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accel.cli.arguments import Red
from accel.codec import store, stream_index
from accel.runtime import read
from accel.system import memory
from bench import index
from bench.epochs import linked
from tests.support import helpers
from tests.support.processes import linux

pytestmark = linux


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, list[str]]]:
    for name in ("_store", "_file", "_tried"):
        monkeypatch.setattr(store, name, getattr(store, name))
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(helpers.jpeg(420, 320, seed=number))
    files = [str(path) for path in sorted(tmp_path.glob("*.jpg"))]
    yield linked(files, tmp_path / "linked"), files
    stream_index.flush()


COMMON = {"without", "first", "second", "later", "first by without", "without by second", "without by later"}


@pytest.mark.parametrize("name", index.PIPELINES)
def test_a_pipeline(name: str, photos: tuple[Path, list[str]]) -> None:
    found = index.measure(name, *photos, 2)
    assert len(found["rounds"]) == 2
    of_views = {"views apart by first"} if isinstance(index.PIPELINES[name], list) else set()
    assert found["medians"].keys() == COMMON | of_views
    assert found["share of the files' bytes"] < 0.5, "a segment, of files so small"
    if not of_views:  # of several the picture is kept
        assert found["share of the files' bytes"] > 0


def test_first_epochs(photos: tuple[Path, list[str]]) -> None:
    found = index.first_epochs("train", photos[0], 4)
    assert found["pairs"] == 4
    assert 0 < found["quartiles"][0] <= found["median"] <= found["quartiles"][2]
    assert found["standard error"] > 0


def test_only_stores_of_turns_are_freed(photos: tuple[Path, list[str]]) -> None:
    other = index.fresh()
    entries, size = store.current(), os.fstat(other).st_size
    index.first_epochs("train", photos[0], 2)
    assert store.current() is not entries
    assert entries is not None
    assert entries.used()[0] == 0
    assert os.fstat(other).st_size == size
    assert index.kept() > 0


def test_an_index_that_changes_pixels_is_noticed(
    photos: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = stream_index.decoded

    def wrong(*arguments: Any) -> Any:
        pixels = decoded(*arguments)
        return pixels if arguments[5] is None else pixels + 1  # by the key

    monkeypatch.setattr(stream_index, "decoded", wrong)
    monkeypatch.setattr(read, "only_decodes", lambda source: False)  # compiled code would decode
    with pytest.raises(Red, match="train: the batches differ"):
        index.measure("train", *photos, 1)


def test_memory_is_counted_once(photos: tuple[Path, list[str]]) -> None:
    found = index.shared(*photos)
    assert found["entries"] > 0
    assert 0 < found["proportional"] <= found["resident, added up"]
    assert found["proportional"] <= found["entries"] + (64 << 10), "pages of tables"
