"""What tests of images from a cache share: pipelines, epochs, and what was counted meanwhile."""

import sys
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torchvision import transforms as T
from torchvision.transforms import v2

import accel
from tests.support import helpers, loaders
from tests.support.helpers import Files, assert_same

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


opened: list[str] = []
"""The files that this process opens while ``listening``."""

listening = False


def _listen(event: str, given: tuple[Any, ...]) -> None:
    if event == "open" and listening:
        opened.append(str(given[0]))


sys.addaudithook(_listen)


def check(dataset: Any, cache: str, seed: int = 0, **options: Any) -> None:
    """An epoch gives what it gives without accel, the random states included."""
    expected, states = helpers.run("torchvision", lambda: epoch(dataset, **options), seed)
    actual, after = helpers.run("cpu", lambda: epoch(dataset, **options), seed, cache=cache)
    assert after == states
    assert_same(actual, expected)


def fill(files: list[str], place: str) -> None:
    """Have a cache know files, planes and results."""
    helpers.run("cpu", lambda: [epoch(Files(files, each)) for each in (TRAIN, TRAIN, EVALUATION)], cache=place)
    counts = Counts()
    helpers.run("cpu", lambda: epoch(Files(files, EVALUATION)), cache=place)
    assert counts() == {"results used": COUNT}
