"""Batches that are cast, or laid out otherwise, before they go to the device: their workers learn to make them so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.backends.cuda.decoder import Decoder
from accel.backends.cuda.execution import Execution
from accel.processes import slot_pool, uses
from accel.processes.arena import Arena
from accel.processes.uses import Use
from accel.recipes.recipe import Step
from tests.support import inside
from tests.support.cuda import needs_compiler
from tests.support.helpers import Files, assert_same, jpeg, open_rgb
from tests.support.processes import linux

pytestmark = [linux, needs_compiler]

TRANSFORM = T.Compose([
    T.RandomResizedCrop(24, scale=(0.2, 0.8)),  # a crop of all of an image is no step
    T.ToTensor(),
    T.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.3)),
])  # fmt: skip
LAST, BATCHES, UNTOLD = torch.channels_last, 12, 3
"""``UNTOLD``: at most so many batches a worker with two batches ahead has made when the first one is used."""

Way = Callable[[torch.Tensor], torch.Tensor]
WAYS: dict[str, Way] = {
    "channels_last": lambda x: x.to("cpu", memory_format=LAST),
    "half": lambda x: x.half().to("cpu"),
    "bfloat16 channels_last": lambda x: x.bfloat16().contiguous(memory_format=LAST).to("cpu"),
    "all at once": lambda x: x.to("cpu", memory_format=LAST, dtype=torch.half, non_blocking=True),
    "integers": lambda x: x.to(torch.int32).to("cpu"),
}


@pytest.fixture
def folder(tmp_path: Path) -> ImageFolder:
    (tmp_path / "one").mkdir()
    for number in range(4 * BATCHES):
        (tmp_path / "one" / f"{number:02}.jpg").write_bytes(jpeg(60 + number, 70, seed=number))
    return ImageFolder(str(tmp_path), TRANSFORM)


@pytest.fixture(autouse=True)
def finished(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that ran as workers had finished them."""
    found: list[int] = []
    launch = Execution.launch

    def watched(self: Execution) -> None:
        if self.finished.schedule is None:  # a worker's
            found.append(self.finished.summary.decoded)
        launch(self)

    monkeypatch.setattr(Execution, "launch", watched)
    monkeypatch.setattr(Decoder, "agrees", lambda _: True)
    return found


def epoch(dataset: Any, way: Way, pinned: bool = False, start: str = "fork") -> list[torch.Tensor]:
    torch.manual_seed(1)
    seen = []
    for images, _ in DataLoader(dataset, 4, num_workers=1, multiprocessing_context=start, timeout=60):
        seen.append(way(images.pin_memory() if pinned else images))
    return seen


def counted(before: dict[str, Any], after: dict[str, Any]) -> tuple[int, int]:
    """The images of finished work that were converted, and the fallbacks."""
    fallbacks = sum(after["fallbacks"].values()) - sum(before["fallbacks"].values())
    return after["converted"] - before["converted"], fallbacks


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_finished_work_is_used_for_all_batches(
    folder: ImageFolder, way: str, pinned: bool, finished: list[int]
) -> None:
    expected = epoch(folder, WAYS[way])
    with accel.image_backend("cuda", device="cpu", threads=1, cache=None):
        before = accel.stats()
        found = epoch(folder, WAYS[way], pinned)
        converted, fallbacks = counted(before, accel.stats())
    assert_same(found, expected)
    if way == "integers":  # without a submission, the first batches are planned again, as a device may cast otherwise
        assert fallbacks <= UNTOLD
        assert fallbacks or pinned
    else:
        assert fallbacks == 0
    assert len(finished) == BATCHES - fallbacks
    assert converted <= 4 * UNTOLD


@pytest.mark.parametrize("dataset", ["spawned", "of one's own"])
def test_other_loaders(folder: ImageFolder, dataset: str, finished: list[int]) -> None:
    own: Any = Files([path for path, _ in folder.samples], TRANSFORM) if dataset == "of one's own" else folder
    start = "spawn" if dataset == "spawned" else "fork"
    expected = epoch(own, WAYS["all at once"])
    with accel.image_backend("cuda", device="cpu", threads=1, cache=None):
        before = accel.stats()
        found = epoch(own, WAYS["all at once"], True, start)
        converted, fallbacks = counted(before, accel.stats())
    assert_same(found, expected)
    assert fallbacks == 0
    assert len(finished) == BATCHES
    assert converted <= 4 * UNTOLD


def test_batches_that_are_used_in_different_ways(folder: ImageFolder, finished: list[int]) -> None:
    """They are finished as they are recorded, and converted; those that came finished otherwise are counted."""

    def changing() -> Way:
        ways = iter([WAYS["half"], WAYS["half"], *[WAYS["channels_last"], lambda x: x.to("cpu")] * 6])
        return lambda images: next(ways)(images)

    expected = epoch(folder, changing())
    with accel.image_backend("cuda", device="cpu", threads=1, cache=None):
        before = accel.stats()
        found = epoch(folder, changing())
        converted, fallbacks = counted(before, accel.stats())
    assert_same(found, expected)
    assert len(finished) == BATCHES - fallbacks
    assert fallbacks <= UNTOLD
    assert converted >= 4


def test_a_batch_that_a_worker_laid_out(folder: ImageFolder, finished: list[int]) -> None:
    """An order that the collate function chose is the one that the worker finishes."""

    class Laid(Files):
        def __getitems__(self, indices: list[int]) -> Any:
            images = torch.stack([self.transform(open_rgb(self.paths[index])) for index in indices])
            return images.contiguous(memory_format=LAST), 0

    own = Laid([path for path, _ in folder.samples], TRANSFORM)

    def seen() -> list[torch.Tensor]:
        torch.manual_seed(1)
        loader = DataLoader(own, 4, num_workers=1, collate_fn=lambda made: made, multiprocessing_context="fork")
        return [images.to("cpu") for images, _ in loader]

    expected = seen()
    with accel.image_backend("cuda", device="cpu", threads=1, cache=None):
        before = accel.stats()
        found = seen()
        assert counted(before, accel.stats()) == (0, 0)
    assert len(finished) == BATCHES
    assert_same(found, expected)


def test_explain_names_what_was_finished(folder: ImageFolder) -> None:
    texts = []
    with accel.image_backend("cuda", device="cpu", threads=1, cache=None):
        for images, _ in DataLoader(folder, 4, num_workers=1, multiprocessing_context="fork", timeout=60):
            half = images.contiguous(memory_format=LAST).half()
            texts.append([accel.explain(each) for each in (images, half)])
            half.to("cpu")
    first, last = texts[0], texts[-1]
    assert "finished by a worker, as float32 contiguous\n" in first[0]
    assert "as float32 contiguous; a second pass on the device makes it float16 channels_last\n" in first[1]
    assert "finished by a worker, as float16 channels_last\n" in last[1]
    assert "main process plans it again: it is not used as float16, as earlier ones were" in last[0]


def test_what_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = Arena.make(torch.multiprocessing)
    assert arena is not None
    slot_pool._know(-7, arena)
    inside.slot_pool_of_worker(monkeypatch, slot_pool.SlotPool(-7, arena))
    try:
        assert uses.expected() is None
        for interleaved in (False, True):
            for casts in uses._CASTS:
                arena.use[0] = 0
                for _ in range(2):
                    uses.learn(-7, Use(interleaved, casts))
                    assert uses.expected() == (interleaved, casts)
                uses.learn(-7, Use(not interleaved, casts))
                uses.learn(-7, Use(interleaved, casts))
                assert uses.expected() is None
        several: tuple[Step, ...] = (("to", (torch.half,)), ("to", (torch.float,)))
        others: list[tuple[Step, ...]] = [several, (("to", (torch.complex64,)),), (("hflip", ()),)]
        for unknown in others:
            arena.use[0] = 0
            uses.learn(-7, Use(False, unknown))
            assert uses.expected() is None
        uses.learn(-8, Use(False, ()))  # a loader that is gone
    finally:
        inside.end_loader(-7)
