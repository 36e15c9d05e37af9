"""Batches of an ``ImageFolder`` that a cache has: looked up together, planned as rows, read in one call."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageFile
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.codec.files import reader
from accel.errors import DecodeError
from accel.planning import columns
from accel.recipes.rows import Rows
from accel.recipes.sources import Files, Pictures, PicturesApart
from accel.runtime import compute
from accel.runtime.memo import result_entries, result_lookup
from accel.runtime.memo.result_pixels import StoredResults
from tests.support import helpers, inside, loaders
from tests.support.cached import COUNT, EVALUATION, RESIZED, VALUES, Counts, check, epoch
from tests.support.processes import linux

pytestmark = [linux, pytest.mark.usefixtures("new", "at_once")]

SQUARE = T.Compose([T.Resize((64, 60)), T.RandomCrop(56), T.RandomHorizontalFlip(), *VALUES])
SMALL = T.Compose([T.Resize((64, 60)), T.RandomCrop(24), T.RandomHorizontalFlip(), *VALUES])


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sources of rows that are planned."""
    found, original = list[Any](), columns.plan

    def plan(rows: Rows, **options: Any) -> Any:
        found.append(rows.sources)
        return original(rows, **options)

    monkeypatch.setattr(compute.columns, "plan", plan)
    return found


def harmed(cache: Path) -> None:
    dice = random.Random(1)
    for path in (cache / "segments").iterdir():
        content = bytearray(path.read_bytes())
        for _ in range(len(content) // 4000):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("transform", [EVALUATION, SQUARE, SMALL, RESIZED])
def test_a_batch_of_results_is_rows(
    folder: Path, place: str, transform: Any, compiled: bool, planned: list[Any], monkeypatch: Any
) -> None:
    """Those of any sizes, of whatever part is shown, are read together; one picture is grey."""
    if not compiled:
        monkeypatch.setattr(reader, "agrees", lambda: False)
    dataset = ImageFolder(folder, transform)
    for number in range(2):
        check(dataset, place, number)
    planned.clear()
    counts = Counts()
    for number in range(2):
        check(dataset, place, number + 2)
    assert counts() == {"results used": 2 * COUNT}
    assert [isinstance(sources, StoredResults) for sources in planned] == [True] * 2


@pytest.mark.parametrize("threads", [1, 3])
def test_results_of_any_sizes_are_made_together(folder: Path, place: str, threads: int, planned: list[Any]) -> None:
    """Those of a batch by one plan; and the crops come from them, by another."""
    dataset, counts = ImageFolder(folder, RESIZED), Counts()
    made, original = list[Any](), columns.plan_apart

    def plan_apart(rows: Rows) -> Any:
        made.append(original(rows))
        return made[-1]

    expected, _ = helpers.run("torchvision", lambda: epoch(dataset))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "plan_apart", plan_apart)
        actual, _ = helpers.run("cpu", lambda: epoch(dataset), cache=place, threads=threads)
    helpers.assert_same(actual, expected)
    assert counts() == {"results": COUNT}
    (together,) = made
    assert len({tuple(shown) for _, *shown in together.columns.parts.tolist()}) > 1
    assert [type(sources) for sources in planned] == [PicturesApart]
    check(dataset, place)
    assert counts() == {"results used": COUNT}


def test_damaged_ones_of_a_batch_are_computed_anew(folder: Path, place: str, tmp_path: Path) -> None:
    dataset = ImageFolder(folder, EVALUATION)
    check(dataset, place)
    harmed(tmp_path / "cache")
    counts = Counts()
    check(dataset, place)
    assert 0 < counts()["results used"] < COUNT


def test_a_damaged_one_whose_file_is_gone_is_named(folder: Path, place: str, tmp_path: Path) -> None:
    dataset = ImageFolder(folder, EVALUATION)
    check(dataset, place)
    for path in (tmp_path / "cache" / "segments").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    gone = dataset.samples[5][0]
    with accel.image_backend("cpu", cache=place):
        batch = loaders.epoch(dataset, batch_size=COUNT)[0][0]
        os.unlink(gone)
        with pytest.raises(DecodeError, match=Path(gone).name) as raised:
            batch.sum()
        assert f"image 5 of a batch of {COUNT}" in str(raised.value)


def test_files_that_are_not_there_yet_are_read_together(folder: Path, place: str) -> None:
    """Some that the cache knows, and some that it does not, in one batch."""
    dataset = ImageFolder(folder, EVALUATION)
    helpers.run("cpu", lambda: epoch(ImageFolder(folder, EVALUATION)), cache=place)
    for number in range(0, COUNT, 3):
        Path(dataset.samples[number][0]).write_bytes(helpers.jpeg(150, 130, seed=100 + number))
    counts = Counts()
    check(dataset, place)
    assert counts() == {"results used": COUNT - len(range(0, COUNT, 3)), "results": len(range(0, COUNT, 3))}
    check(dataset, place)
    assert counts() == {"results used": COUNT}


@pytest.fixture
def unwanted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files of a batch that are so small that no result of them is kept."""
    monkeypatch.setattr(result_entries, "_SMALL", 0)
    found = sorted(map(str, folder.rglob("*.jpg")))[2::4]
    for number, path in enumerate(found):
        Path(path).write_bytes(helpers.jpeg(40 + number, 30, "L" if number == 0 else "RGB", seed=number))
    return found


@pytest.mark.parametrize("transform", [RESIZED, SQUARE, EVALUATION])
def test_what_is_not_kept_of_a_batch_is_made_along(
    folder: Path, place: str, unwanted: list[str], transform: Any, planned: list[Any]
) -> None:
    """So that all of it is rows: beside those that are made for the cache, and beside those that it has."""
    dataset, counts = ImageFolder(folder, transform), Counts()
    for number in range(3):
        check(dataset, place, number)
        kept = {"results": COUNT - len(unwanted)} if number == 0 else {"results used": COUNT - len(unwanted)}
        assert kept.items() <= counts().items()
    of_first, *others = [type(sources) for sources in planned]
    assert of_first in (Pictures, PicturesApart)
    assert others == [tuple, tuple]


def renew(folder: Path) -> None:
    """Files that have other keys, so that a cache knows nothing of them."""
    for path in folder.rglob("*.jpg"):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100))


@pytest.mark.parametrize("transform", [RESIZED, SQUARE, EVALUATION])
@pytest.mark.parametrize("small", [True, False])
def test_of_a_batch_that_is_new_no_source_is_made(
    folder: Path, place: str, transform: Any, small: bool, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is known which steps come each time; one picture is grey, some may be too small to be kept."""
    unwanted = request.getfixturevalue("unwanted") if small else []
    dataset, kept = ImageFolder(folder, transform), COUNT - len(unwanted)
    check(dataset, place)
    renew(folder)
    known, counts = accel.stats()["indexes"], Counts()
    with monkeypatch.context() as patch:
        made = inside.sources_made(patch)
        check(dataset, place, 1)
        assert not made
    assert counts() == {"results": kept}
    assert (accel.stats()["indexes"] > known) == small, "of no use of files that are not decoded again"
    check(dataset, place, 2)
    assert counts().get("results used") == kept


@pytest.mark.parametrize("learnt", [True, False])
def test_what_is_damaged_keeps_no_other_of_its_batch_from_the_cache(folder: Path, place: str, learnt: bool) -> None:
    dataset = ImageFolder(folder, RESIZED)
    if learnt:
        check(dataset, place)
        renew(folder)
    path = dataset.samples[3][0]
    Path(path).write_bytes(helpers.undecodable(80, 90))
    for kept in ({"results": COUNT - 1}, {"results used": COUNT - 1}):
        counts = Counts()
        with accel.image_backend("cpu", cache=place):
            batch = loaders.epoch(dataset, batch_size=COUNT)[0][0]
            with pytest.raises(DecodeError, match=Path(path).name) as raised:
                batch.sum()
        assert f"image 3 of a batch of {COUNT}" in str(raised.value)
        assert kept.items() <= counts().items()


def test_where_others_are_large_their_crops_alone_are_decoded(
    folder: Path, place: str, unwanted: list[str], planned: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_lookup, "ALONG", 0)
    dataset, counts = ImageFolder(folder, RESIZED), Counts()
    for number in range(2):
        check(dataset, place, number)
    assert {"results": COUNT - len(unwanted), "results used": COUNT - len(unwanted)}.items() <= counts().items()
    assert planned == []


def test_a_damaged_one_that_is_not_kept_is_named(folder: Path, place: str, unwanted: list[str]) -> None:
    dataset = ImageFolder(folder, RESIZED)
    check(dataset, place)
    Path(unwanted[1]).write_bytes(helpers.undecodable(40, 30))
    position = [path for path, _ in dataset.samples].index(unwanted[1])
    with accel.image_backend("cpu", cache=place):
        batch = loaders.epoch(dataset, batch_size=COUNT)[0][0]
        with pytest.raises(DecodeError, match=Path(unwanted[1]).name) as raised:
            batch.sum()
        assert f"image {position} of a batch of {COUNT}" in str(raised.value)


def test_of_a_batch_that_is_there_no_source_is_made(folder: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But to learn, once, that its results are those of the steps that come."""
    dataset, made = ImageFolder(folder, EVALUATION), list[int]()

    def counted(original: Any) -> Any:
        def one(self: Any, number: int) -> Any:
            made.append(number)
            return original(self, number)

        return one

    for number in range(2):
        check(dataset, place, number)
    for cls, name in ((Files, "_one"), (Files, "_unread"), (StoredResults, "_one")):
        monkeypatch.setattr(cls, name, counted(getattr(cls, name)))
    check(dataset, place, 2)
    assert sorted(set(made)) == sorted(made)
    del made[:]
    counts = Counts()
    check(dataset, place, 3)
    assert (made, counts()) == ([], {"results used": COUNT})


def test_a_batch_that_is_there_is_looked_at_anew(
    folder: Path, place: str, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever may change from one batch to the next: what Pillow would open, a file, the steps."""
    for number in range(3):
        check(ImageFolder(folder, EVALUATION), place, number)
    counts = Counts()
    with monkeypatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
        with accel.image_backend("cpu", cache=place), pytest.raises(Image.DecompressionBombError):
            epoch(ImageFolder(folder, EVALUATION))
    with monkeypatch.context() as patch:
        patch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
        check(ImageFolder(folder, EVALUATION), place, 3)
    check(ImageFolder(folder, SQUARE), place, 4)
    assert counts().get("results used", 0) == 0
    Path(files[4]).write_bytes(helpers.jpeg(100, 140, seed=50))
    check(ImageFolder(folder, EVALUATION), place, 5)
    assert counts().get("results used", 0) == COUNT - 1
