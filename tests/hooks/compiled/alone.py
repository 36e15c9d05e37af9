"""Datasets of a user's own, whose images come to a composition one by one, compared with torchvision's."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import accel
from accel.hooks.compiled import single
from tests.hooks.compiled.support import ways
from tests.support import helpers

COMPILED = "alone, compiled"


class Own(Dataset[Any]):
    """A user's dataset. ``between``: called before each image."""

    def __init__(self, root: Path, transform: Any, read: Any = helpers.open_rgb, between: Any = None) -> None:
        self.paths = sorted(map(str, root.rglob("*.jpg")))
        self.transform, self.read, self.between = transform, read, between

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        if self.between is not None:
            self.between()
        image = self.transform(self.read(self.paths[index]))
        return image, index


def each(dataset: Any, passes: int = 1) -> Callable[[], list[Any]]:
    """Every image, and the random states after it."""

    def run() -> list[Any]:
        found: list[Any] = []
        for number in [*range(len(dataset))] * passes:
            image = dataset[number][0]
            torch.manual_seed(5) if number == 7 else None  # somebody else draws, too
            found += [(torch.clone(image) + 0).contiguous(), list(helpers.random_states())]  # as a view's lie in memory
        return found

    return run


def check(dataset: Any, seeds: int = 2, passes: int = 1) -> dict[str, int]:
    before = accel.stats()["ways"]
    for seed in range(seeds):
        helpers.assert_equal_runs(each(dataset, passes), seed)
    found = ways(before, alone=True)
    assert looks(dataset, 0) == looks(dataset, 1 << 30)
    return found


def looks(dataset: Any, first: int) -> list[Any]:
    """What is known of each lazy image, by its program or (``first``) as it is recorded otherwise."""
    with pytest.MonkeyPatch.context() as patch, accel.image_backend("cpu"):
        patch.setattr(single, "FIRST", first)
        torch.manual_seed(1)
        random.seed(1)
        images = [dataset[number][0] for number in range(len(dataset))]
        states = [image.lazy if helpers.is_lazy(image) else None for image in images]
        about = [(lazy.layout, lazy.made, lazy.recipes[0].source.shared) if lazy else 0 for lazy in states]
        return [(type(image), tuple(image.stride()), known) for image, known in zip(images, about, strict=True)]


def assert_not_compiled(dataset: Any, why: str, **options: Any) -> None:
    found = check(dataset, **options)
    assert found
    assert all(name.startswith("alone, not compiled: ") and why in name for name in found), found
