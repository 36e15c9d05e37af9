"""``python -m bench.index``: epochs are compared, and memory that processes share is counted once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accel.cli.arguments import Red
from accel.codec import store, stream_index
from accel.system import memory
from bench import index
from tests.support import helpers
from tests.support.processes import linux

pytestmark = linux


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    for name in ("_store", "_file", "_tried"):
        monkeypatch.setattr(store, name, getattr(store, name))
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(helpers.jpeg(420, 320, seed=number))
    yield [str(path) for path in sorted(tmp_path.glob("*.jpg"))]
    stream_index.flush()


def test_a_pipeline(files: list[str]) -> None:
    found = index.measure("train", files, 2)
    assert len(found["rounds"]) == 2
    assert found["medians"].keys() == {"without", "first", "later", "first by without", "without by later"}
    assert 0 < found["share of the files' bytes"] < 0.5, "a segment, of files so small"


def test_an_index_that_changes_pixels_is_noticed(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = stream_index.decoded

    def wrong(*arguments: Any) -> Any:
        pixels = decoded(*arguments)
        return pixels if arguments[5] is None else pixels + 1  # by the key

    monkeypatch.setattr(stream_index, "decoded", wrong)
    with pytest.raises(Red, match="train: the batches differ"):
        index.measure("train", files, 1)


def test_memory_is_counted_once(files: list[str]) -> None:
    found = index.shared(files)
    assert found["entries"] > 0
    assert 0 < found["proportional"] <= found["resident, added up"]
    assert found["proportional"] <= found["entries"] + (64 << 10), "pages of tables"
