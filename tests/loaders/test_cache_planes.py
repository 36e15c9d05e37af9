"""Batches of half-decoded pictures, which threads read in compiled calls: the same as image by image."""

import random
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Subset
from torchvision.datasets import ImageFolder

import accel
from accel.backends.cpu.regions import PlaneRegions
from accel.cache.worth import Rate
from accel.codec.files import reader
from accel.recipes.options import Options
from accel.runtime.memo import cached
from accel.runtime.memo.pace import Pace
from tests.support import helpers
from tests.support.cached import COUNT, TRAIN, TRAIN_V2, Counts, epoch
from tests.support.helpers import assert_same
from tests.support.processes import linux
from tests.support.shares import begin_with_little_memory, noted

pytestmark = [linux, pytest.mark.usefixtures("new", "at_once")]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    return noted(monkeypatch, PlaneRegions)


def same(dataset: Any, place: str, seed: int, threads: int = 1) -> None:
    expected = helpers.run("torchvision", lambda: epoch(dataset), seed)[0]
    assert_same(helpers.run("cpu", lambda: epoch(dataset), seed, cache=place, threads=threads)[0], expected)


def full(folder: Path, place: str, transform: Any = TRAIN) -> Any:
    dataset = ImageFolder(folder, transform)
    for number in range(4):
        same(dataset, place, number)
    return dataset


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("transform", [TRAIN, TRAIN_V2], ids=["v1", "v2"])
def test_a_batch_that_is_there_is_shared(
    folder: Path, place: str, transform: Any, threads: int, shared: list[tuple[int, int]]
) -> None:
    dataset = full(folder, place, transform)
    shared.clear()
    counts = Counts()
    for number in range(6):
        same(dataset, place, 10 + number, threads)
    assert counts() == {"planes used": 6 * COUNT}
    assert shared == [(COUNT, 0)] * 6 * threads


def test_what_may_not_be_read_by_compiled_code_is_read_one_by_one(
    folder: Path, place: str, shared: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = full(folder, place)
    shared.clear()
    monkeypatch.setattr(reader, "agrees", lambda: False)
    counts = Counts()
    same(dataset, place, 9)
    assert counts() == {"planes used": COUNT}
    assert shared == []


def test_files_that_have_no_planes_are_decoded_beside_them(
    folder: Path, place: str, shared: list[tuple[int, int]]
) -> None:
    """Progressive ones never have any; the others of their batch are shared."""
    dataset = ImageFolder(folder, TRAIN)
    for number in (2, 7):
        Path(dataset.samples[number][0]).write_bytes(helpers.jpeg(150, 130, seed=100 + number, progressive=True))
    full(folder, place)
    shared.clear()
    same(dataset, place, 9)
    assert shared == [(COUNT - 2, 0)]


def test_those_that_are_there_are_read_together_where_something_is_put_in(
    folder: Path, place: str, shared: list[tuple[int, int]]
) -> None:
    dataset = full(folder, place)
    Path(dataset.samples[3][0]).write_bytes(helpers.jpeg(150, 130, seed=103))
    shared.clear()
    counts = Counts()
    same(dataset, place, 9)
    assert counts() == {"planes used": COUNT - 1, "planes": 1}
    assert shared == [(COUNT - 1, 0)]


def test_reading_them_is_a_stage_of_its_own(folder: Path, place: str, shared: list[tuple[int, int]]) -> None:
    dataset = full(folder, place)
    shared.clear()
    with accel.image_backend("cpu", cache=place, threads=1), accel.profile(show=False) as report:
        epoch(dataset)
    assert shared == [(COUNT, 0)]
    assert report.stages["decode"]["count"] == COUNT
    assert report.stages["decode"]["seconds"] > 0


@pytest.mark.parametrize("threads", [1, 3])
def test_damaged_ones_are_left_and_computed_anew(
    folder: Path, place: str, tmp_path: Path, threads: int, shared: list[tuple[int, int]]
) -> None:
    dataset, dice = full(folder, place), random.Random(1)
    shared.clear()
    for path in (tmp_path / "cache" / "segments").iterdir():
        content = bytearray(path.read_bytes())
        for _ in range(COUNT // 2):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
    same(dataset, place, 9, threads)
    assert sum(left for _, left in shared) > 0


def test_segments_that_are_gone(folder: Path, place: str, tmp_path: Path) -> None:
    dataset = full(folder, place)
    for path in (tmp_path / "cache" / "segments").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    counts = Counts()
    same(dataset, place, 9)
    assert counts().get("planes used", 0) < COUNT


def test_what_an_index_saves_is_measured_where_most_files_have_one(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a batch is not that of the few in it that were decoded before."""
    measured = list[Rate]()
    monkeypatch.setattr(Rate, "add", lambda self, time, amount: measured.append(self))
    monkeypatch.setattr(Pace, "choose", lambda self, regions, whole, indexed: [])
    for number in range(COUNT):
        path = tmp_path / "large" / "one" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(helpers.jpeg(500, 400, seed=number))
    dataset = ImageFolder(tmp_path / "large", TRAIN)
    for known in (Subset(dataset, range(8)), dataset, dataset):
        same(known, place, 1)
    cache = cached.of(Options(cache=place))
    assert cache is not None
    assert measured == [cache.worth.first, cache.worth.by_index], "of the second epoch nothing"


def test_more_working_memory_is_had_when_it_is_needed(
    folder: Path, place: str, monkeypatch: pytest.MonkeyPatch, shared: list[tuple[int, int]]
) -> None:
    dataset = full(folder, place)
    shared.clear()
    begin_with_little_memory(monkeypatch)
    same(dataset, place, 9)
    assert shared == [(COUNT, 0)]
