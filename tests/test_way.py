"""One image's way through accel's files, from its opening to the tensor, counted (docs/architecture.md tells it)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate
from torchvision import transforms as T
from torchvision.datasets.folder import default_loader

import accel
from accel.hooks.compiled import single
from accel.workers import slot_pool
from tests.support import helpers

MOST_FILES = 35
MOST_RETURNS, OF_VALUES = 4, 9

ROOT = Path(accel.__file__).resolve().parent
READER = ("accel/files/reader.py", "accel/files/buffers.py")
APART = ("accel/codec/", *READER, "accel/native/", "accel/backends/cuda/jpeg/", "accel/hooks/compiled/")
"""The decoder, the reader of files, what calls compiled code, and programs of compositions: a way of their own."""

GROUND = (
    *("accel/system/", "accel/ops/", "accel/options.py", "accel/errors.py"),
    *("accel/recipe.py", "accel/rows.py", "accel/drawn.py"),
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
    for folder, name in ((ROOT, "accel"), (ROOT.parent / "backends", "accel/backends")):
        if frame.f_code.co_filename.startswith(f"{folder}/"):
            return f"{name}{frame.f_code.co_filename[len(str(folder)) :]}"
    return None


@contextmanager
def recorded() -> Iterator[list[Way]]:
    """Note every call into a file of accel's that another file of accel's, or somebody else, makes."""
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
    monkeypatch.setattr(slot_pool, "_pool", None)  # put back: workers that are forked later would take it for their own
    with slot_pool.loader():
        monkeypatch.setattr("torch.utils.data._utils.worker._worker_info", worker)
        for _ in range(2):
            assert type(batch()) is torch.Tensor
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
    assert way[0] == ("accel/switch.py", "set_image_backend")
    assert ("accel/backend.py", "parse_options") in way
    assert not counted(way, "accel/")
