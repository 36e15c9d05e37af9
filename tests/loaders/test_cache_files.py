"""The files of a batch where there is a cache: in one piece of memory, but for those of which it has something."""

import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchvision.datasets import ImageFolder

import accel
from accel.cache.entry import KINDS, packed_key
from accel.cache.numbers import Numbers
from accel.codec.files import fields as of
from accel.codec.files import reader
from accel.hooks import tv_files
from accel.processes import switch
from accel.recipes.recipe import Source
from accel.recipes.rows import Form, Rows, Slot, Structure
from accel.recipes.sources import Files
from accel.runtime import read
from accel.runtime.memo import cached, result_lookup
from accel.runtime.memo.pace import Pace
from accel.system import memory
from tests.support import helpers, inside
from tests.support.cached import COUNT, TRAIN, Counts, epoch
from tests.support.helpers import assert_same
from tests.support.processes import linux

pytestmark = [linux, pytest.mark.usefixtures("new")]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which of the files of a batch, that the cache lacks, it takes."""
    numbers: list[int] = []
    monkeypatch.setattr(Pace, "choose", lambda self, regions, whole, indexed: [n for n in numbers if n < len(regions)])
    return numbers


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places of files of which a source was made."""
    return inside.sources_made(monkeypatch)


def same(dataset: Any, place: str, seed: int, threads: int = 1) -> None:
    expected = helpers.run("torchvision", lambda: epoch(dataset), seed)[0]
    assert_same(helpers.run("cpu", lambda: epoch(dataset), seed, cache=place, threads=threads)[0], expected)


def said(source: Source) -> Any:
    return source.header, source.name, source.key, source.cached is not None, source.is_read


@pytest.mark.parametrize("threads", [1, 3])
def test_of_a_file_that_the_cache_lacks_no_source_is_made(
    folder: Path, place: str, chosen: list[int], made: list[int], threads: int
) -> None:
    dataset = ImageFolder(folder, TRAIN)
    for number in range(3):
        same(dataset, place, number)
    del made[:]
    same(dataset, place, 3, threads)
    assert made == []


@pytest.mark.parametrize("part", [1, 2, COUNT - 1, COUNT])
def test_some_are_in_the_cache(
    folder: Path, files: list[str], place: str, chosen: list[int], part: int, made: list[int]
) -> None:
    """Looked up before they are read, and behind that: as those that are opened one after the other."""
    dataset = ImageFolder(folder, TRAIN)
    for number in range(2):  # by then it is known that images begin otherwise each time
        same(dataset, place, number)
    chosen[:] = range(part)
    same(dataset, place, 2)
    del chosen[:]
    counts = Counts()
    same(dataset, place, 3)
    assert counts().get("planes used", 0) == part
    with accel.image_backend("cpu", cache=place):
        selection = switch.current()
        one_by_one = [tv_files.opened(path, selection) for path in files]
        for finds in (True, False):
            cached._finding[selection.options] = finds
            together = tv_files.opened_together(files, selection)
            assert type(together) is Files
            assert list(map(said, together)) == list(map(said, one_by_one))  # type: ignore[arg-type]
            assert [bytes(each.data) for each in together] == [Path(path).read_bytes() for path in files]  # type: ignore[union-attr]
            assert cached.finds(selection) is (part >= COUNT / 8)


def test_files_between_those_that_are_there(folder: Path, files: list[str], place: str, chosen: list[int]) -> None:
    """Grey ones, progressive ones, and such as are asked for again."""
    for number in (3, 8):
        Path(files[number]).write_bytes(helpers.jpeg(90, 130, seed=number, progressive=True))
    dataset = ImageFolder(folder, TRAIN)
    chosen[:] = range(1, COUNT, 3)
    for number in range(5):
        same(dataset, place, number, threads=1 + number % 2)
    with accel.image_backend("cpu", cache=place):
        selection = switch.current()
        cached._finding[selection.options] = True
        together = tv_files.opened_together(files, selection)
        assert isinstance(together, Files)
        there = dict(together.made())
        assert there
        only = read.which_only_decode(together)
        assert only.tolist() == [n not in there and n not in (3, 8) for n in range(COUNT)]
        asked = int(np.flatnonzero(only)[0])
        for places, more in (([asked, *there], 1), ([asked], -1)):
            together.ask(places, more)
        assert [together[n].uses for n in (asked, *there)] == [0] + [1] * len(there)
        together.ask([asked], 1)
        assert not read.which_only_decode(together)[asked]


def test_a_file_that_is_replaced_after_it_was_kept(
    folder: Path, files: list[str], place: str, chosen: list[int]
) -> None:
    dataset = ImageFolder(folder, TRAIN)
    chosen[:] = range(6)
    for number in range(4):
        same(dataset, place, number)
    for number in (0, 5, 9):
        Path(files[number]).write_bytes(helpers.jpeg(100, 140, seed=50 + number))
    same(dataset, place, 7)


def test_keys_by_path(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [*files[:3], "no such file", files[0] + "\N{LATIN SMALL LETTER E WITH ACUTE}"]
    Path(paths[-1]).symlink_to(files[2])
    expected = [memory.key_of(os.stat(path)) if os.path.exists(path) else None for path in paths]
    assert None not in expected[:3]
    assert cached._names(paths) == [each and packed_key(each) for each in expected]
    os.utime(files[1], ns=(1 << 62, 1 << 62))  # later than any clock
    found = reader.keys(paths)
    assert found is not None
    assert found.trusted.tolist() == [True, False, True, False, True]
    assert reader.keys(["a\0b"]) is None
    monkeypatch.setattr(os, "stat", lambda *given, **more: pytest.fail("asked otherwise"))
    assert reader.keys(paths) is None


def test_places_that_have_numbers() -> None:
    numbers, rng = Numbers(None, None), random.Random(3)  # type: ignore[arg-type]
    places = [rng.randrange(-(1 << 59), 1 << 59) * KINDS for _ in range(300)]
    in_table = [place + rng.randrange(KINDS) for place in (*places[:100], -(1 << 63))]
    numbers._there = np.sort(np.array(in_table))
    own = [place + rng.randrange(KINDS) for place in places[50:150]]
    numbers.add(own)
    expected = dict[int, list[int]]()
    for number in sorted({*in_table, *own}):
        expected.setdefault(number // KINDS * KINDS, []).append(number)
    asked = [*places, -(1 << 63), (1 << 63) - KINDS]
    assert numbers.at(asked) == expected
    assert {*expected} == {*places[:150], -(1 << 63)}
    assert Numbers(None, None).at(asked) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("forms", [
    (),
    (Form("crop", (Slot(0), Slot(1), Slot(2), 30)), Form("hflip", (), 3)),
    (Form("crop", (0, Slot(1), Slot(2), 30), 3),),
    (Form("hflip"), Form("crop", (Slot(0), Slot(1), Slot(2), 30)), Form("hflip", (), 3)),
])  # fmt: skip
def test_what_is_decoded_of_files_that_are_lacking(files: list[str], forms: tuple[Form, ...]) -> None:
    structure, rng = Structure.of(*forms), np.random.default_rng(1)
    with accel.image_backend("cpu"):
        together = tv_files.opened_together(files, switch.current())
    assert isinstance(together, Files)
    numbers = rng.integers(-20, 200, (len(files), 4))
    numbers[:, 3] = rng.integers(0, 2, len(files))
    rows = Rows(together, structure, numbers[:, : structure.columns])
    which = [*range(0, len(files), 2)]
    regions = []
    for recipes in (rows, list(rows)):
        batch = result_lookup.BatchLookup(recipes, lambda recipe: pytest.fail("nothing is damaged"))
        batch.uncached = which
        regions.append(batch.regions().tolist())
    assert regions[0] == regions[1]


def test_numbers_of_files_have_64_bits_without_a_sign(files: list[str]) -> None:
    """As file systems give them that number files by a hash."""
    with accel.image_backend("cpu"):
        together = tv_files.opened_together(files, switch.current())
    assert isinstance(together, Files)
    expected = []
    for place, key in enumerate(together.keys().packed()):
        device, inode, *rest = struct.unpack("=QQQqq", key or b"")
        expected.append((device, inode | 1 << 63, *rest))
        together.known[place, of.INODE] |= -(1 << 63)
    assert [source.key for source in together] == expected
    count, other = (
        len(files),
        Files(together.content, together.places[:1], together.known[:1], {}, [""], together.selection),
    )
    other.cached = {0: ("", None)}
    together.take(range(count), [count], other)
    assert together.keys().packed() == [packed_key(key) for key in (*expected, expected[0])]
