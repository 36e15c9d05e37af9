"""Threads that make batches at once, as loaders without workers do that have a thread each."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate
from torchvision.datasets import ImageFolder

import accel
from accel.hooks.compiled import batch, program
from accel.hooks.compiled.transforms import fixed
from accel.recipes.recipe import recording
from tests.hooks.compiled.support import PIPELINES, TOGETHER, ways
from tests.support import helpers
from tests.support.processes import in_threads


@pytest.fixture(autouse=True)
def _in_all_threads() -> None:
    accel.set_image_backend("cpu")


def batch_of(dataset: Any) -> Any:
    indices = [*range(len(dataset))]
    made = batch.fetched(dataset, indices, stacks=True)
    if isinstance(made, batch.RecordedBatch):
        return default_collate(made.samples())[0] + 0
    with recording.batch(f"one by one: {made}", by_batch=True):
        return default_collate([dataset[each] for each in indices])[0] + 0


def test_a_pipeline_is_compiled_though_another_thread_draws_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = fixed.ImageKind.image

    def disturbed(*given: Any) -> Any:
        in_threads([lambda: torch.rand(1)])
        return original(*given)

    monkeypatch.setattr(fixed.ImageKind, "image", disturbed)
    monkeypatch.setattr(program, "_programs", {})
    dataset = ImageFolder(str(root), PIPELINES["train"]())
    before = accel.stats()["ways"]
    batch_of(dataset)
    assert ways(before) == {TOGETHER: len(dataset)}


def test_first_batches_that_come_at_once_are_drawn_in_one_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_programs", {})
    sets = [ImageFolder(str(root), PIPELINES["train of v2"]()) for _ in range(4)]
    before = accel.stats()["ways"]
    in_threads([lambda each=each: batch_of(each) for each in sets])  # type: ignore[misc]
    assert ways(before) == {TOGETHER: sum(map(len, sets))}


def test_no_two_batches_have_the_same_numbers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, original, meeting = ImageFolder(str(root), PIPELINES["train"]()), program.Program.run, threading.Barrier(2)

    def meets(*given: Any) -> Any:
        drawn = original(*given)
        with suppress(threading.BrokenBarrierError):
            meeting.wait(0.3)  # for the other, if it may draw now
        return drawn

    helpers.seed_everything(3)
    expected = [batch_of(dataset) for _ in range(2)]
    state = torch.get_rng_state()
    monkeypatch.setattr(program.Program, "run", meets)
    helpers.seed_everything(3)
    found = in_threads([lambda: batch_of(dataset)] * 2)
    assert torch.equal(torch.get_rng_state(), state)
    if not torch.equal(found[0], expected[0]):
        found.reverse()
    assert all(map(torch.equal, found, expected))
