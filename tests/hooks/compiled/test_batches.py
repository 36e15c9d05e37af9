"""Batches drawn in one go: equal to torchvision's in every bit, in order and in the random states that they leave."""

import gc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, default_collate
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import accel
from accel.hooks.compiled.program import Outcome
from accel.hooks.compiled.random_numbers.tape import Tape
from accel.hooks.compiled.transforms.draws import Piece, Run
from accel.lazy.tensor_base import LazyTensorBase
from accel.recipes.recipe import Recipe, Source
from accel.recipes.rows import Rows
from tests.hooks.compiled.support import PIPELINES, TOGETHER, check, epochs, ways, with_states
from tests.support import helpers


@pytest.mark.parametrize("name", PIPELINES)
def test_batches_are_torchvisions(name: str, root: Path, thorough: bool) -> None:
    dataset = ImageFolder(str(root), PIPELINES[name]())
    found: dict[str, int] = {}
    for size in (1, 4, 13):
        counted = check(dataset, seeds=20 if thorough else 1, batch_size=size)
        found = {way: found.get(way, 0) + counted.get(way, 0) for way in found | counted}
    assert found.keys() >= {TOGETHER}
    # images of several sizes lie in memory by how they were cropped
    alone = {way for way in found if way != TOGETHER}
    assert alone <= {"one by one: the collate function may look at how tensors lie in memory"}


def _as_lists(samples: list[Any]) -> tuple[list[Any], torch.Tensor]:
    return [image for image, _ in samples], torch.tensor([target for _, target in samples])


def _mixed(samples: list[Any]) -> Any:
    return v2.MixUp(num_classes=2)(*default_collate(samples))


@pytest.mark.parametrize("collate", [_as_lists, _mixed, list])
@pytest.mark.parametrize("name", ["train", "train of v2", "erased", "v2 on Pillow images"])
def test_collate_functions_get_torchvisions_samples(collate: Any, name: str, root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES[name]())
    found = check(dataset, collate_fn=collate)
    assert (TOGETHER in found) == (name != "train of v2")


def test_workers_draw_from_their_own_seeds(root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES["train"]())
    options = {"num_workers": 2, "multiprocessing_context": "fork", "collate_fn": with_states, "batch_size": 7}
    before = accel.stats()["ways"]
    helpers.assert_equal_runs(epochs(dataset, 1, **options))
    assert ways(before) == {TOGETHER: 13}


def test_the_accelerators_backend_takes_drawn_batches(root: Path) -> None:
    run = epochs(ImageFolder(str(root), PIPELINES["train"]()))
    expected, states = helpers.run("torchvision", run)
    before = accel.stats()["ways"]
    actual, after = helpers.run("cuda", run, device="cpu")
    assert after == states
    helpers.assert_same(actual, expected)
    assert ways(before) == {TOGETHER: 26}


# -- what is left of batches that are gone ---------------------------------------------------------------------------


_KINDS = (Piece, Run, Outcome, Tape, LazyTensorBase, Recipe, Source, Rows)


def _living() -> Counter[str]:
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if issubclass(type(each), _KINDS))


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["train", "warped", "two views", "contrast of tensors"])
def test_nothing_is_left(name: str, backend: str, root: Path) -> None:
    options: dict[str, Any] = {"device": "cpu"} if backend == "cuda" else {}
    loader = DataLoader(ImageFolder(str(root), PIPELINES[name]()), 4, drop_last=True, shuffle=True)
    living = []
    with accel.image_backend(backend, **options):
        for _ in range(7):
            for images, _ in loader:
                assert images.to("cpu").isfinite().all()
            del images
            living.append(_living())
    more = living[-1] - living[2]
    assert more.keys() <= {"Piece", "Tape"}
    assert more["Tape"] <= 1  # the next batch may go on with the last one
    assert more["Piece"] <= 24  # one for each order of colours is kept
