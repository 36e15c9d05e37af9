"""Stream indexes in a cache's folder: for the files of which it has no room for anything else, and for later runs."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.cache.cache import Cache
from accel.cache.entry import INDEX, PLANES
from accel.codec import store
from accel.codec.jpeg import index_fields
from accel.planning.prefix import Prefixes
from accel.recipes.options import Options
from accel.recipes.recipe import Source
from accel.runtime.memo import cached, indexes, planes, result_lookup
from accel.system import memory
from tests.support import helpers, inside, loaders
from tests.support.cuda import needs_compiler
from tests.support.helpers import Files, assert_same
from tests.support.processes import linux

pytestmark = [
    linux,
    pytest.mark.usefixtures("at_once", "small_batches_indexed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
COUNT = 12
TRAIN = T.Compose([T.RandomResizedCrop(40, scale=(0.1, 0.5)), T.RandomHorizontalFlip(), T.ToTensor()])
NAMES = "indexes", "indexed", "indexes dropped", "indexes read", "planes", "planes used"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Files of which an index pays; each has about 100 kB of planes."""
    paths = [tmp_path / f"{number}.jpg" for number in range(COUNT)]
    for number, path in enumerate(paths):
        options = ({"subsampling": 0}, {"subsampling": 2}, {"restart_marker_blocks": 7})[number % 3]
        path.write_bytes(helpers.jpeg(420, 320 + 8 * number, seed=number, **options))
    return [str(path) for path in paths]


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The option of a cache that has room for the planes of some of the files."""
    return f"{tmp_path / 'cache'}:600kB"


class Run:
    """What a run knows that has nothing in memory; it counts what was done since it was asked last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cached.flush()
        inside.no_store(monkeypatch, tried=True)
        monkeypatch.setattr(memory, "SETTLED", 0.0)
        monkeypatch.setattr(result_lookup, "prefixes", Prefixes())
        file = memory.anonymous_file(1 << 24)
        store.share(file, 1 << 24)
        os.close(file)
        self._before: dict[str, int] = {}
        self()

    def __call__(self) -> dict[str, int]:
        now = {name: accel.stats()[name] for name in NAMES}
        before, self._before = self._before, now
        return {name: count - before.get(name, 0) for name, count in now.items() if count != before.get(name, 0)}


def check(files: list[str], place: str, seed: int, backend: str = "cpu", **options: Any) -> None:
    def values() -> Any:
        return [
            leaf.numpy()
            for leaf in tree_leaves(loaders.epoch(Files(files, TRAIN), batch_size=4))
            if isinstance(leaf, torch.Tensor)
        ]

    expected = helpers.run("torchvision", values, seed)[0]
    actual = helpers.run(backend, values, seed, **{"cache": place, **options})[0]
    assert_same(actual, expected)


def test_a_later_run_reads_what_an_earlier_one_found(
    files: list[str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Run(monkeypatch)
    for seed in range(3):
        check(files, place, seed)
    made = counts()["planes"]
    assert 0 < made < COUNT - 3
    counts = Run(monkeypatch)
    check(files, place, 3)
    later = counts()
    found = later["planes used"]  # of some there was no room any more when they were written
    assert 0 < found <= made
    assert later["indexes read"] == later["indexed"] == COUNT - found
    check(files, place, 4)
    assert counts() == {"planes used": found, "indexed": COUNT - found}  # from memory


def test_a_full_folder_has_room_for_indexes(files: list[str], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planes leave them some, and they take nothing back."""
    counts = Run(monkeypatch)
    for seed in range(4):
        check(files, place, seed)
    assert counts()["planes used"] > 0
    cache = cached.of(Options(cache=place))
    assert cache is not None
    used, budget = cache.used()
    assert used <= budget
    assert cache.room(INDEX, 1000)
    assert not cache.room(PLANES, 150_000)


def test_where_no_index_is_taken_the_runs_own_are_enough(
    files: list[str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files whose index knows few rows are decoded by compiled calls for many, as there is no room for another one."""
    folder = Path(files[0]).parent / "all" / "of one class"
    folder.mkdir(parents=True)
    for path in files:
        Path(path).rename(folder / Path(path).name)
    counts, dataset = Run(monkeypatch), ImageFolder(folder.parent, TRAIN)

    def epoch() -> None:
        helpers.run(
            "cpu", lambda: [images.data_ptr() for images, _ in loaders.epoch(dataset, batch_size=4)], 1, cache=place
        )

    for _ in range(4):
        epoch()
    said, has_part = list[bool](), indexes.has_part

    def noted(source: Source) -> bool:
        said.append(has_part(source))
        return said[-1]

    monkeypatch.setattr(indexes, "has_part", noted)
    monkeypatch.setattr(Cache, "room", lambda self, kind, size: False)
    counts()
    epoch()
    assert len(said) == counts()["indexed"] > 0
    assert not any(said)


def test_planes_leave_a_part_of_the_budget_to_indexes(tmp_path: Path) -> None:
    cache = Cache.open(tmp_path / "of-entries", 1 << 20, version="1")
    assert cache is not None
    for number in range(400):
        cache.put(b"%d" % number, b"", PLANES, bytes([number % 256]) * 4000)
        cache.flush()
    used, budget = cache.used()
    assert 0.9 * budget < used <= budget - budget // 32
    assert cache.put(b"0", b"", INDEX, bytes(20_000))
    cache.flush()
    assert cache.used()[0] > used + 20_000  # nothing was taken back
    cache.close()


@pytest.mark.parametrize("damage", ["flipped", "cut", "another's version"])
def test_what_is_damaged_is_made_anew(
    files: list[str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    counts = Run(monkeypatch)
    for seed in range(3):
        check(files, place, seed)
    for path in (tmp_path / "cache" / "segments").iterdir():
        content = path.read_bytes()
        if damage == "flipped":
            path.write_bytes(bytes(each ^ 4 for each in content))
        elif damage == "cut":
            path.write_bytes(content[:10])
    if damage == "another's version":
        monkeypatch.setattr(cached, "tag", lambda: b"another.")
    counts = Run(monkeypatch)
    check(files, place, 3)
    found = counts()
    assert "indexes read" not in found
    assert found["indexes"] == COUNT


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=needs_compiler)])
def test_indexes_of_another_format_are_replaced(
    files: list[str], place: str, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """A version of accel with the same number wrote them, of as many rows as a new one has."""
    options = {} if backend == "cpu" else {"device": "cpu"}
    monkeypatch.setattr(planes, "room", lambda *_: False)

    def put(self: indexes.Durable, index: bytes) -> None:
        words = np.frombuffer(index, np.uint16).copy()
        words[index_fields.KIND] = 0xACC1
        meta = cached.tag() + int(words[index_fields.ROWS]).to_bytes(2, "little")
        self.cache.put(self.key, self.header, INDEX, words.tobytes(), meta)

    counts = Run(monkeypatch)
    with monkeypatch.context() as earlier:
        earlier.setattr(indexes.Durable, "put", put)
        for seed in range(2):
            check(files, place, seed, backend, **options)
    counts = Run(monkeypatch)
    for seed in range(2):
        check(files, place, seed, backend, **options)
    assert "indexes dropped" not in counts()
    counts = Run(monkeypatch)
    check(files, place, 3, backend, **options)
    found = counts()
    assert found["indexes read"] == found["indexed"] == COUNT
    assert "indexes dropped" not in found


@needs_compiler
def test_an_accelerator_reads_and_writes_them(files: list[str], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Run(monkeypatch)
    for seed in range(3):
        check(files, place, seed, "cuda", device="cpu")
    assert counts()["indexes"] == COUNT
    for backend, options in (("cuda", {"device": "cpu"}), ("cpu", {})):
        counts = Run(monkeypatch)
        check(files, place, 3, backend, **options)
        assert counts()["indexes read"] >= COUNT - 8  # the host puts planes in of those for which there is room
