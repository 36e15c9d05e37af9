"""One image's way through accel's files, and a batch's, from opening to the tensor, counted (docs/architecture.md tells
it)."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader, default_collate
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader

import accel
from accel.hooks.compiled import single
from accel.planning.prefix import Prefixes
from accel.processes import slot_pool
from accel.runtime.memo import result_lookup
from accel.system import memory
from tests.support import helpers, inside
from tests.support.processes import linux

MOST_FILES = 38
MOST_RETURNS, OF_VALUES = 4, 10

ROOT = Path(accel.__file__).resolve().parent
READER = ("accel/codec/files/reader.py",)
CODEC = [f"accel/codec/{path.name}" for path in (ROOT / "codec").iterdir() if path.name != "files"]
APART = (*CODEC, *READER, "accel/system/native/", "accel/backends/cuda/jpeg/", "accel/hooks/compiled/")
"""The decoder, the reader of files, what calls compiled code, and programs of compositions: a way of their own."""

GROUND = (
    *("accel/system/", "accel/ops/", "accel/recipes/options.py", "accel/errors.py"),
    *("accel/recipes/recipe.py", "accel/recipes/rows.py", "accel/recipes/drawn.py"),
)
"""What every file looks things up in, which is nowhere that an image goes to."""

ASKED = ("accel/lazy/state.py", "materialize")

PIPELINE = T.Compose(
    [T.RandomResizedCrop(32), T.RandomHorizontalFlip(1.0), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
)

Way = list[tuple[str, str]]
"""Calls from one file into another: which file, and which function of it. It begins with a call from elsewhere."""


def file_of(frame: FrameType) -> str | None:
    """The file of accel's that a function stands in, without the folders above it; None for all others."""
    file = frame.f_code.co_filename
    return f"accel{file[len(str(ROOT)) :]}" if file.startswith(f"{ROOT}/") else None


@contextmanager
def recorded(calls: Counter[tuple[str, str]] | None = None) -> Iterator[list[Way]]:
    """Note every call into a file of accel's that another file of accel's, or somebody else, makes.

    ``calls``: counts all calls of accel's functions, by file and function.
    """
    ways: list[Way] = []
    inside: list[tuple[FrameType, str]] = []
    begun: list[FrameType] = []  # also keeps them, so that no other frame is one of them

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = file_of(frame) if event in ("call", "return") else None
        if name is None:
            return
        if event == "return":
            inside.pop()
            return
        goes_on = any(frame is each for each in begun)  # a generator
        if calls is not None and not goes_on:
            calls[name, frame.f_code.co_name] += 1
        if not inside:
            ways.append([])
        if not goes_on and (not inside or inside[-1][1] != name):
            ways[-1].append((name, frame.f_code.co_name))
        begun.append(frame)
        inside.append((frame, name))

    sys.setprofile(note)
    try:
        yield ways
    finally:
        sys.setprofile(None)


def returns(way: Way) -> list[str]:
    """The files that are entered again after another one was, in order."""
    stays: list[str] = []
    for name, _ in way:
        if not stays or stays[-1] != name:
            stays.append(name)
    return [name for number, name in enumerate(stays) if name in stays[:number]]


def counted(way: Way, *left_out: str) -> Way:
    return [(name, function) for name, function in way if not name.startswith(left_out)]


@pytest.fixture
def ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Way]:
    """Of an image in a worker, once everything is compiled and remembered."""
    (tmp_path / "image.jpg").write_bytes(helpers.jpeg(64, 48))

    def batch() -> torch.Tensor:
        made: torch.Tensor = default_collate([PIPELINE(default_loader(tmp_path / "image.jpg"))])
        return made

    monkeypatch.setattr(single, "FIRST", 0)
    accel.set_image_backend("cpu")
    worker = type("Worker", (), {"num_workers": 1, "id": 0})
    inside.slot_pool_of_worker(monkeypatch)  # put back: workers that are forked later would take it for their own
    with slot_pool.loader():
        monkeypatch.setattr("torch.utils.data._utils.worker._worker_info", worker)
        for _ in range(3):  # the same crop, so that nothing is new in the last
            helpers.seed_everything(0)
            with recorded() as found:
                result = batch()
    assert type(result) is torch.Tensor
    return found


def test_few_files(ways: list[Way]) -> None:
    """From ``Image.open`` to the tensor."""
    calls = [call for way in ways for call in way]
    files = sorted({name for name, _ in counted(calls, *APART)})
    assert len(files) <= MOST_FILES, files
    assert {"accel/lazy/image.py", "accel/planning/plan.py", "accel/backends/cpu/shares.py"} < set(files)
    assert any(name.startswith("accel/codec/jpeg/") for name, _ in calls)


def test_few_returns(ways: list[Way]) -> None:
    """When values are asked for, and before: each function that torchvision or torch calls begins a way of its own."""
    asked, *others = [number for number, way in enumerate(ways) if ASKED in way]
    assert not others
    start = ways[asked].index(ASKED)
    for way in (*ways[:asked], ways[asked][:start], ways[asked][start:], *ways[asked + 1 :]):
        found = returns(counted(way, *APART, *GROUND))
        most = OF_VALUES if way and way[0] == ASKED else MOST_RETURNS
        assert len(found) <= most, (way[0], found)


def test_what_is_counted() -> None:
    """A call from one file into another enters it; a file that was left, by a call into a third, is returned to."""
    assert returns([(name, "f") for name in ["a", "b", "c", "b", "b", "d", "a"]]) == ["b", "a"]
    with recorded() as ways:
        accel.set_image_backend("cpu", threads=3)
    (way,) = ways
    assert way[0] == ("accel/processes/switch.py", "set_image_backend")
    assert ("accel/backend.py", "parse_options") in way
    assert not counted(way, "accel/")


# -- batches ------------------------------------------------------------------------------------------------

COMPILED = ("accel/system/native/",)
"""What calls compiled code: all that is left out of a batch's way."""

BATCH, BATCHES = 16, 6
_VALUES = [T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), *_VALUES])
EVALUATION = T.Compose([T.Resize(40), T.CenterCrop(32), *_VALUES])


class Own(torch.utils.data.Dataset[Any]):
    """A dataset that accel does not know."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(map(str, folder.rglob("*.jpg")))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Any:
        return TRAIN(default_loader(self.files[number])), number


class Counts(NamedTuple):
    """The files that a batch passes, how often its way returns to one, and the calls of accel's functions."""

    files: int
    returns: int
    calls: int


MOST = {
    "drawn": Counts(51, 46, 260),
    "own": Counts(61, 600, 1630),
    "filling, train": Counts(64, 84, 456),
    "all put in, train": Counts(70, 670, 1900),
    "full, train": Counts(64, 114, 570),
    "filling, evaluation": Counts(72, 160, 670),
    "full, evaluation": Counts(58, 102, 420),
}
"""For one batch of 16, with some room, as by the clock more is done. Of a training batch the account pays for no file
at first (``accel.runtime.memo.pace``)."""


def measured(dataset: Any, counts: dict[str, int], **options: Any) -> Counts:
    """The least counts of the later batches of an epoch; by the clock, some of them look for changes by others.

    ``counts``: what each of them adds to these numbers of ``accel.stats()``.
    """
    accel.set_image_backend("cpu", threads=1, **options)
    torch.manual_seed(1)
    found = []
    for number, batch in enumerate(iterations(DataLoader(dataset, batch_size=BATCH))):
        if number < BATCHES // 2:
            batch()
            continue
        known, calls = accel.stats(), Counter[tuple[str, str]]()
        with recorded(calls) as all_ways:
            batch()
        assert {name: accel.stats()[name] - known[name] for name in counts} == counts
        ways = [counted(way, *COMPILED) for way in all_ways]
        files = {name for way in ways for name, _ in way}
        of_all = sum(count for (name, _), count in calls.items() if not name.startswith(COMPILED))
        found.append(Counts(len(files), sum(len(returns(way)) for way in ways), of_all))
    accel.set_image_backend("torchvision")
    return Counts(*map(min, zip(*found, strict=True)))


def iterations(loader: DataLoader[Any]) -> Iterator[Callable[[], Any]]:
    """For each batch of a loader the function that makes it."""
    batches = iter(loader)
    for _ in range(len(loader)):
        yield lambda: next(batches)[0].data_ptr()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "SETTLED", 0.0)  # files may be kept however young they are
    monkeypatch.setattr(result_lookup, "prefixes", Prefixes())  # nothing is known of the pipelines
    inside.close_caches()  # those of other tests are flushed too
    for number in range(BATCH * BATCHES):
        path = tmp_path / "data" / f"class{number % 2}" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(helpers.jpeg(96 + 8 * (number % 4), 80, seed=number))
    return tmp_path / "data"


def check(name: str, found: Counts) -> None:
    assert all(own <= most for own, most in zip(found, MOST[name], strict=True)), found


@linux
@pytest.mark.parametrize(("name", "dataset"), [("drawn", lambda folder: ImageFolder(folder, TRAIN)), ("own", Own)])
def test_the_way_of_a_batch(name: str, dataset: Any, folder: Path) -> None:
    check(name, measured(dataset(folder), {}))


@linux
def test_the_way_of_a_training_batch_that_a_cache_does_not_take(folder: Path, tmp_path: Path) -> None:
    found = measured(ImageFolder(folder, TRAIN), {}, cache=f"{tmp_path / 'cache'}:64MB")
    check("filling, train", found)


@linux
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("filling", "full", "transform", "kept"),
    [
        ("all put in, train", "full, train", TRAIN, "planes"),
        ("filling, evaluation", "full, evaluation", EVALUATION, "results"),
    ],
)
def test_the_way_of_a_batch_with_a_cache(
    filling: str, full: str, transform: Any, kept: str, folder: Path, tmp_path: Path
) -> None:
    dataset, cache = ImageFolder(folder, transform), f"{tmp_path / 'cache'}:64MB"
    check(filling, measured(dataset, {kept: BATCH}, cache=cache))
    for _ in range(2):
        found = measured(dataset, {f"{kept} used": BATCH}, cache=cache)
    check(full, found)
