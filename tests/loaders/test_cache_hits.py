"""What is looked at on every hit of a cache: the file, Pillow's limits, versions, damage; and what is not kept."""

import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageFile
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.errors import DecodeError
from accel.runtime.memo import cached
from tests.support import helpers
from tests.support.cached import (
    COUNT,
    EVALUATION,
    TRAIN,
    VALUES,
    Counts,
    check,
    epoch,
    fill,
)
from tests.support.helpers import Files, assert_same, random_states, seed_everything
from tests.support.processes import linux

pytestmark = [
    linux,
    pytest.mark.usefixtures("new", "at_once"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_another_file_in_its_place_has_its_own_pixels(files: list[str], place: str) -> None:
    fill(files, place)
    first, second = (Path(path) for path in files[:2])
    content, times = first.read_bytes(), first.stat()
    other = Image.open(second).convert("RGB").resize((32, 24))
    other.save(first, "JPEG")
    first.write_bytes(first.read_bytes().ljust(len(content), b"\0"))
    os.utime(first, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert first.stat().st_size == times.st_size
    check(Files(files, TRAIN), place)


@pytest.mark.parametrize("change", ["gone", "replaced"])
def test_a_file_that_changes_after_it_was_opened_is_named(files: list[str], place: str, change: str) -> None:
    """Where the cache does not have what is asked for."""
    helpers.run("cpu", lambda: epoch(Files(files, EVALUATION)), cache=place)
    expected = helpers.run("torchvision", lambda: EVALUATION(Image.open(files[3])))[0]
    with accel.image_backend("cpu", cache=place):
        image = T.Resize(30)(Image.open(files[3]))
        known = EVALUATION(Image.open(files[3]))
        if change == "gone":
            os.unlink(files[3])
        else:
            shutil.copy(files[2], files[3])
        with pytest.raises(DecodeError) as raised:
            image.tobytes()
        assert files[3] in str(raised.value)
    assert_same(known, expected)  # the file's as it was


def test_the_file_is_found_again_whatever_it_was_called(
    files: list[str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that mean another file by then, or that ``os.path.abspath`` would make another file's."""
    helpers.run("cpu", lambda: [epoch(Files(files, EVALUATION)) for _ in range(2)], cache=place)  # and no planes
    first = Path(files[0])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "link").symlink_to(first.parent)
    monkeypatch.chdir(elsewhere)
    folder = os.open(first.parent, os.O_RDONLY)

    def pixels() -> list[bytes]:
        names = (linked := os.path.join("link", "..", first.parent.name, first.name), Path(linked).absolute())
        found = [Image.open(name).tobytes() for name in (*names, os.fsencode(linked))]
        with open(first.name, "rb", opener=lambda name, flags: os.open(name, flags, dir_fd=folder)) as file:
            found.append(Image.open(file).tobytes())
        with open(linked, "rb") as file:
            os.chdir(tmp_path)
            found.append(Image.open(file).tobytes())
        os.chdir(elsewhere)
        return found

    try:
        expected = helpers.run("torchvision", pixels)[0]
        assert helpers.run("cpu", pixels, cache=place)[0] == expected
    finally:
        os.close(folder)


def test_a_file_that_cannot_be_opened_fails_as_in_pillow(files: list[str], place: str) -> None:
    fill(files, place)
    os.unlink(files[0])
    with accel.image_backend("cpu", cache=place):
        with pytest.raises(FileNotFoundError):
            Image.open(files[0])
        with pytest.raises(FileNotFoundError):
            helpers.open_rgb(files[0])


def test_may_it_be_read(files: list[str], place: str, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The root may read anything, so the system's answer is made up."""
    fill(files, place)
    asked: list[Any] = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((path, mode)))
    opened.clear()
    with accel.image_backend("cpu", cache=place):
        Image.open(files[0])
    assert asked == [(files[0], os.R_OK)]
    assert opened.count(files[0]) == 1  # Pillow opens it, and would say that it may not be read


def test_the_limit_of_pillow(files: list[str], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(files, place)
    load = ImageFolder(Path(files[0]).parent.parent).loader
    with accel.image_backend("cpu", cache=place):
        for limit, outcome in ((15_000, Image.DecompressionBombWarning), (5_000, Image.DecompressionBombError)):
            monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
            for loader in (Image.open, load):
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    with pytest.raises(outcome):
                        loader(files[0])


@pytest.mark.parametrize("changed", ["truncated", "version"])
def test_hits_that_are_not_believed(
    files: list[str], place: str, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    fill(files, place)
    if changed == "truncated":
        monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    else:
        monkeypatch.setattr(cached, "tag", lambda: b"another.")
    counts = Counts()
    check(Files(files, EVALUATION), place)
    assert "results used" not in counts()


@pytest.mark.parametrize("threads", [1, 3])
def test_damaged_entries_are_computed_anew(files: list[str], place: str, tmp_path: Path, threads: int) -> None:
    def used(transform: Any, seed: int) -> Any:
        return helpers.run("cpu", lambda: epoch(Files(files, transform)), seed, cache=place, threads=threads)[0]

    fill(files, place)
    dice = random.Random(1)
    for path in (tmp_path / "cache" / "segments").iterdir():
        content = bytearray(path.read_bytes())
        for _ in range(200):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
    for number, transform in enumerate((EVALUATION, TRAIN, EVALUATION, TRAIN)):
        expected = helpers.run("torchvision", lambda run=transform: epoch(Files(files, run)), number)[0]
        assert_same(used(transform, number), expected)
    assert any("damaged" in reason for reason in accel.stats()["fallbacks"])


def test_black_in_the_place_of_a_damaged_file_is_not_kept(tmp_path: Path, place: str) -> None:
    paths = []
    for number in range(10):
        content = helpers.undecodable(160, 120) if number == 3 else helpers.jpeg(160, 120, seed=number)
        paths.append(str(tmp_path / f"{number}.jpg"))
        Path(paths[-1]).write_bytes(content)

    def black(on_error: str) -> Callable[[], Any]:
        with accel.image_backend("cpu", cache=place, on_error=on_error):
            return epoch(Files(paths, EVALUATION))

    for _ in range(2):
        black("replace")
    with pytest.raises(DecodeError, match=r"3\.jpg"):
        black("raise")


# -- budgets and policy -------------------------------------------------------------------------------------


def test_a_full_cache_stops_growing_and_serves_what_it_has(files: list[str], tmp_path: Path) -> None:
    place, shares = f"{tmp_path / 'cache'}:200kB", []
    for number in range(4):
        counts = Counts()
        check(Files(files, TRAIN), place, number)
        shares.append(counts())
    assert 0 < shares[0]["planes"] < COUNT
    assert all(each == {"planes used": shares[0]["planes"]} for each in shares[2:])


def test_a_step_that_was_taken_for_one_that_comes_each_time(files: list[str], place: str) -> None:
    """A wrong guess costs bytes, and no pixel is wrong."""

    class Rarely:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self, image: Any) -> Any:
            self.count += 1
            return T.functional.rotate(image, 90) if self.count % 11 == 0 else image

    for number in range(3):
        transforms = [T.Compose([T.Resize(64), Rarely(), T.CenterCrop(48), T.ToTensor()]) for _ in range(2)]
        expected = helpers.run("torchvision", lambda run=transforms[0]: epoch(Files(files, run)), number)[0]
        actual = helpers.run("cpu", lambda run=transforms[1]: epoch(Files(files, run)), number, cache=place)[0]
        assert_same(actual, expected)


def test_what_is_random_is_not_kept(files: list[str], place: str) -> None:
    counts = Counts()
    for number in range(3):
        check(Files(files, T.Compose([T.RandomCrop(48), T.Resize(40), *VALUES])), place, number)
    assert counts() == {"planes": COUNT, "planes used": 2 * COUNT}


def test_the_states_of_random_numbers_are_torchvisions(files: list[str], place: str) -> None:
    for number in range(3):
        states = []
        for options in ({}, {"cache": place}):
            with accel.image_backend("cpu", **options):
                seed_everything(number)
                epoch(Files(files, TRAIN))
                states.append(random_states())
        assert states[0] == states[1]


def test_explain_says_what_is_known(files: list[str], place: str) -> None:
    fill(files, place)
    with accel.image_backend("cpu", cache=place):
        assert "known to the cache" in accel.explain(EVALUATION(Image.open(files[0])))
