"""A cache with a folder: what is taken from it equals what the files give, and no file is opened for it."""

import os
import pickle
import random
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageFile
from torch.utils._pytree import tree_leaves
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.io import decode_image
from torchvision.transforms import v2

import accel
from accel.errors import DecodeError
from accel.lazy.tensor_base import pending_state
from accel.runtime import cached, results
from accel.system import memory
from accel.workers import packing
from tests.support import helpers, loaders
from tests.support.cuda import needs_compiler
from tests.support.helpers import Each, Files, assert_same, open_rgb, random_states, seed_everything
from tests.support.processes import in_child, linux

pytestmark = [linux, pytest.mark.usefixtures("at_once"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
COUNT = 12
NORM = [0.5, 0.4, 0.3], [0.2, 0.3, 0.25]
VALUES = [T.ToTensor(), T.Normalize(*NORM)]
TRAIN = T.Compose([T.RandomResizedCrop(40, scale=(0.1, 0.5)), T.RandomHorizontalFlip(), *VALUES])
EVALUATION = T.Compose([T.Resize(64), T.CenterCrop(48), *VALUES])
RESIZED = T.Compose([T.Resize(64), T.RandomCrop(48), T.RandomHorizontalFlip(), *VALUES])
_V2 = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*NORM)]
TRAIN_V2 = v2.Compose([v2.RandomResizedCrop(40, scale=(0.1, 0.5)), v2.RandomHorizontalFlip(), *_V2])
EVALUATION_V2 = v2.Compose([v2.Resize(64), v2.CenterCrop(48), *_V2])
PIPELINES = {
    "train": (TRAIN, "planes"),
    "evaluation": (EVALUATION, "results"),
    "resized": (RESIZED, "results"),
    "train v2": (TRAIN_V2, "planes"),
    "evaluation v2": (EVALUATION_V2, "results"),
}


def epoch(dataset: Any, **options: Any) -> list[Any]:
    """An epoch whose values are computed."""
    batches = loaders.epoch(dataset, **{"batch_size": COUNT, **options})
    for leaf in tree_leaves(batches):
        if isinstance(leaf, torch.Tensor):
            leaf.data_ptr()
    return batches


def encoded(number: int) -> bytes:
    options = ({"subsampling": 0}, {"subsampling": 2}, {"restart_marker_blocks": 7})[number % 3]
    mode = "L" if number == 4 else "RGB"
    return helpers.jpeg(160 + 8 * (number % 4), 120 + 10 * (number % 3), mode, seed=number, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of files, as ``ImageFolder`` has them."""
    for number in range(COUNT):
        path = tmp_path / "data" / f"class{number % 2}" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(number))
    return tmp_path / "data"


@pytest.fixture
def files(folder: Path) -> list[str]:
    return sorted(map(str, folder.rglob("*.jpg")))


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The option of a new cache."""
    return f"{tmp_path / 'cache'}:64MB"


@pytest.fixture(autouse=True)
def new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are known however young; nothing is known of any pipeline."""
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    monkeypatch.setattr(results, "prefixes", results.Prefixes())


class Counts:
    """How often what happened since this was asked last."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self()

    def __call__(self) -> dict[str, int]:
        names = "results", "results used", "planes", "planes used"
        now = {name: accel.stats()[name] for name in names}
        before, self._before = self._before, now
        return {name: count - before.get(name, 0) for name, count in now.items() if count != before.get(name, 0)}


_opened: list[str] = []
_listening = False


def _listen(event: str, given: tuple[Any, ...]) -> None:
    if event == "open" and _listening:
        _opened.append(str(given[0]))


sys.addaudithook(_listen)


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The files that this process opens."""
    global _listening
    _opened.clear()
    _listening = True
    yield _opened
    _listening = False


def check(dataset: Any, cache: str, seed: int = 0, **options: Any) -> None:
    """An epoch gives what it gives without accel, the random states included."""
    expected, states = helpers.run("torchvision", lambda: epoch(dataset, **options), seed)
    actual, after = helpers.run("cpu", lambda: epoch(dataset, **options), seed, cache=cache)
    assert after == states
    assert_same(actual, expected)


# -- what is taken equals what the files give ---------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("kind", ["ImageFolder", "Image.open", "open file"])
def test_every_epoch_is_the_same_and_later_ones_open_no_file(
    folder: Path, files: list[str], place: str, opened: list[str], kind: str, name: str
) -> None:
    transform, kept = PIPELINES[name]
    counts = Counts()
    if kind == "ImageFolder":
        dataset: Any = ImageFolder(folder, transform)
    else:
        load = _with_open if kind == "open file" else open_rgb
        dataset = Each(files, lambda path: transform(load(path)))
    for number in range(3):
        expected, states = helpers.run("torchvision", lambda: epoch(dataset), number)
        opened.clear()
        actual, after = helpers.run("cpu", lambda: epoch(dataset), number, cache=place)
        if number == 2 and kind != "open file":
            assert not set(opened) & set(files)
        assert after == states
        assert_same(actual, expected)
    made = counts()
    assert made[kept] == COUNT
    assert made[f"{kept} used"] >= COUNT


def _with_open(path: str) -> Image.Image:
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


@pytest.mark.parametrize("mode", ["UNCHANGED", "RGB"])
def test_torchvisions_reader(files: list[str], place: str, opened: list[str], mode: str) -> None:
    colour = [path for path in files if not path.endswith("04.jpg")]
    for pipeline in (TRAIN_V2, EVALUATION_V2):
        steps = [step for step in pipeline.transforms if not isinstance(step, v2.ToImage)]
        run = v2.Compose(steps)
        dataset = Each(colour, lambda path, run=run: run(decode_image(path, mode)))
        for number in range(3):
            opened.clear()
            check(dataset, place, number)
        assert not set(opened) & set(colour)  # torchvision opens none by Python's means


def test_pillows_and_torchvisions_results_are_told_apart(files: list[str], place: str) -> None:
    """They are of the same files and steps, and of other decoders."""
    datasets = [Files(files, EVALUATION), Each(files, lambda path: T.Resize(64)(decode_image(path, "RGB")).float())]
    for number in range(2):
        for dataset in datasets:
            check(dataset, place, number, batch_size=1)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2},
        {"num_workers": 1, "persistent_workers": True},
    ],
    ids=["fork", "persistent"],
)
def test_workers_share_it(files: list[str], place: str, options: dict[str, Any]) -> None:
    counts = Counts()
    for transform in (TRAIN, EVALUATION):
        for number in range(2):
            check(Files(files, transform), place, number, **options)
    made = counts()
    assert made["planes"] + made["results"] >= COUNT
    assert made["planes used"] + made["results used"] >= COUNT


def test_spawned_workers_share_it(files: list[str], place: str) -> None:
    time.sleep(2.1)  # the files are young for a process that this test has no hand in
    counts = Counts()
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    expected = helpers.run("torchvision", lambda: epoch(Files(files, EVALUATION)))[0]
    for _ in range(2):
        assert_same(helpers.run("cpu", lambda: epoch(Files(files, EVALUATION), **options), cache=place)[0], expected)
    assert counts() == {"results": COUNT, "results used": COUNT}


def test_a_later_run_finds_it(files: list[str], place: str) -> None:
    check(Files(files, EVALUATION), place)
    check(Files(files, EVALUATION), place)

    def later() -> None:
        counts = Counts()
        cached._caches.clear()
        check(Files(files, EVALUATION), place)
        assert counts()["results used"] >= COUNT

    in_child(later)


def test_results_are_made_of_planes_and_no_file_is_opened(files: list[str], place: str, opened: list[str]) -> None:
    helpers.run("cpu", lambda: [epoch(Files(files, TRAIN)) for _ in range(2)], cache=place)
    opened.clear()
    counts = Counts()
    helpers.run("cpu", lambda: epoch(Files(files, EVALUATION)), cache=place)
    assert counts()["results"] == COUNT
    assert not [path for path in opened if path in files]
    check(Files(files, EVALUATION), place)


def test_several_results_of_a_file(files: list[str], place: str) -> None:
    """Another pipeline has its own, and neither takes the other's place."""
    counts = Counts()
    others = T.Compose([T.Resize(50, T.InterpolationMode.BICUBIC), T.CenterCrop(32), *VALUES])
    for transform in (EVALUATION, others, EVALUATION, others):
        check(Files(files, transform), place)
    assert counts() == {"results": 2 * COUNT, "results used": 2 * COUNT}


def test_images_computed_one_by_one(files: list[str], place: str) -> None:
    def pixels() -> list[Any]:
        images = [T.Resize(64)(Image.open(path)) for path in files]
        return [(image.tobytes(), image.getpixel((3, 5)), image.size) for image in images]

    for _ in range(3):
        helpers.run("cpu", lambda: epoch(Files(files, RESIZED)), cache=place)
        assert helpers.run("cpu", pixels, cache=place)[0] == helpers.run("torchvision", pixels)[0]


def test_what_the_cache_does_not_know_is_the_files(files: list[str], place: str) -> None:
    def asked() -> list[Any]:
        found = []
        for path in files:
            image = Image.open(path)
            found.append((image.info, image.getexif(), image.filename, image.format, image.size, image.mode))
            found.append((image.copy().tobytes(), image.quantization, image.layers, type(image).__mro__[-2:]))
            with Image.open(path) as small:
                small.thumbnail((20, 20))
                found.append(small.tobytes())
        return found

    helpers.run("cpu", lambda: [epoch(Files(files, each)) for each in (TRAIN, TRAIN, EVALUATION)], cache=place)
    expected = helpers.run("torchvision", asked)[0]
    assert helpers.run("cpu", asked, cache=place)[0] == expected


# -- what must be looked at on every hit --------------------------------------------------------------------


def fill(files: list[str], place: str) -> None:
    helpers.run("cpu", lambda: [epoch(Files(files, each)) for each in (TRAIN, TRAIN, EVALUATION)], cache=place)
    counts = Counts()
    helpers.run("cpu", lambda: epoch(Files(files, EVALUATION)), cache=place)
    assert counts() == {"results used": COUNT}


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


# -- computed in the main process ---------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["train", "evaluation", "resized"])
def test_an_accelerators_batches(folder: Path, place: str, name: str, workers: int) -> None:
    """What workers found in the cache they send by its key, and the main process reads it there."""
    transform, kept = PIPELINES[name]
    dataset, counts = ImageFolder(folder, transform), Counts()
    helpers.run("cpu", lambda: epoch(dataset), cache=place)  # fills it with planes, or results
    for number in range(2):
        expected, states = helpers.run("torchvision", lambda: epoch(dataset, num_workers=workers), number)
        options = {"cache": place, "device": "cpu"}
        actual, after = helpers.run("cuda", lambda: epoch(dataset, num_workers=workers), number, **options)
        assert after == states
        assert_same(actual, expected)
    assert counts()[f"{kept} used"] >= 2 * COUNT


@needs_compiler
def test_an_accelerator_fills_it_with_results(folder: Path, place: str) -> None:
    dataset, counts = ImageFolder(folder, EVALUATION), Counts()
    expected = helpers.run("torchvision", lambda: epoch(dataset))[0]
    for _ in range(2):
        with accel.image_backend("cuda", device="cpu", cache=place):
            assert_same(epoch(dataset), expected)
    assert counts() == {"results": COUNT, "results used": COUNT}


def test_a_known_file_is_sent_by_its_key(files: list[str], place: str) -> None:
    fill(files, place)
    with accel.image_backend("cpu", cache=place):
        image = TRAIN(Image.open(files[0]).convert("RGB"))
        packed = packing.pack(pending_state(image).recipes)  # type: ignore[union-attr]
        assert packed.data.nbytes == 0
        (recipe,) = packing.unpack(packed)
        assert not recipe.source.is_read
        assert recipe.source.cached.planes is not None
        again = pickle.loads(pickle.dumps(recipe.source))
        assert (again.is_read, bytes(again.data)) == (False, Path(files[0]).read_bytes())
