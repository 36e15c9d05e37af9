"""Datasets that are torchvision's own, whose batches are drawn in one go, and others, which are asked."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder, folder, wrap_dataset_for_transforms_v2
from torchvision.transforms import v2

import accel
from tests.hooks.compiled.own import Doubled
from tests.hooks.compiled.support import PIPELINES, TOGETHER, assert_one_by_one, check, ways
from tests.support import helpers


class Aside(ImageFolder):
    """Overrides nothing that makes a sample."""

    def about(self) -> str:
        return "photos"


class Attributed(ImageFolder):
    @property
    def transform(self) -> Any:
        return T.Compose([T.CenterCrop(20), T.ToTensor()])

    @transform.setter
    def transform(self, transform: Any) -> None:
        pass


class Delegating(Dataset[Any]):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)

    def __getitem__(self, index: int) -> Any:
        image, target = self.dataset[index]
        return image, target + 10

    def __len__(self) -> int:
        return len(self.dataset)


class FromMiddle(Subset[Any]):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.dataset[self.indices[-1 - index]] for index in indices]


def _own_loader(path: str) -> Any:
    return folder.pil_loader(path).rotate(90)


DATASETS: dict[str, tuple[Callable[[str, Any], Any], str]] = {
    "overridden": (lambda root, t: Doubled(root, t), "__getitem__ of its own"),
    "an attribute": (lambda root, t: Attributed(root, t), "other attributes"),
    "delegating": (lambda root, t: Delegating(ImageFolder(root, t)), "__getitem__ of its own"),
    "wrapped": (lambda root, t: wrap_dataset_for_transforms_v2(ImageFolder(root, t)), "__getitem__ of its own"),
    "another loader": (lambda root, t: ImageFolder(root, t, loader=_own_loader), "the loader"),
    "targets": (lambda root, t: ImageFolder(root, t, target_transform=lambda n: n + random.randint(0, 9)), "target_"),
    "a subclass of Subset": (lambda root, t: FromMiddle(ImageFolder(root, t), [3, 1, 2, 9]), "__getitem__ of its own"),
    "no transform": (lambda root, t: ImageFolder(root, T.Lambda(T.functional.pil_to_tensor)), "Lambda"),
}


@pytest.mark.parametrize("name", DATASETS)
def test_other_datasets_are_asked_for_their_samples(name: str, root: Path) -> None:
    make, why = DATASETS[name]
    options = {"batch_size": 1} if name == "no transform" else {}
    assert_one_by_one(make(str(root), PIPELINES["train"]()), why, **options)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_subclass_that_overrides_nothing_is_drawn(root: Path, wrapped: bool) -> None:
    dataset: Any = Aside(str(root), PIPELINES["train"]())
    if wrapped:
        dataset = Subset(Subset(dataset, np.random.default_rng(1).permutation(13).tolist()), [-1, 3, 0, 5])
    assert check(dataset) == {TOGETHER: 4 * len(dataset)}
    assert not hasattr(ImageFolder, "__getitems__")
    assert ImageFolder.__getitem__ is folder.DatasetFolder.__getitem__


def test_a_replaced_getitem_is_called(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = folder.DatasetFolder.__getitem__
    dataset = ImageFolder(str(root), PIPELINES["train"]())
    assert check(dataset, seeds=1) == {TOGETHER: 26}
    monkeypatch.setattr(folder.DatasetFolder, "__getitem__", lambda self, index: (own(self, index)[0], -1))
    assert_one_by_one(dataset, "a __getitem__ of its own")


def test_a_dataset_may_change_between_batches(root: Path) -> None:
    def run() -> list[Any]:
        transform: Any = PIPELINES["train"]()
        dataset = ImageFolder(str(root), transform)
        crop, flip, _, normalize = transform.transforms
        found = [*DataLoader(dataset, 5)]
        crop.scale, flip.p, normalize.mean = (0.5, 0.6), 0.9, [0.1, 0.2, 0.3]
        found += DataLoader(dataset, 5)
        normalize.mean[1] = 0.7
        found += DataLoader(dataset, 5)
        crop.size = (20, 24)
        transform.transforms[1] = T.RandomVerticalFlip()
        found += DataLoader(dataset, 5)
        dataset.samples = dataset.samples[::-2]
        found += DataLoader(dataset, 5)
        dataset.transform = T.Compose([T.Resize((9, 9)), transform.transforms[2]])
        return [*found, *DataLoader(dataset, 5)]

    before = accel.stats()["ways"]
    helpers.assert_equal_runs(run)
    assert ways(before).keys() == {TOGETHER}


@pytest.mark.parametrize("make", [v2.Pad, partial(v2.RandomCrop, 30), v2.RandAugment])
def test_a_fill_that_is_changed_behind_its_name(make: Callable[..., Any], root: Path) -> None:
    def run() -> list[Any]:
        filled = make(2, fill=3)
        dataset = ImageFolder(str(root), v2.Compose([v2.Resize((32, 32)), filled, v2.PILToTensor()]))
        found = [*DataLoader(dataset, 13)]
        filled._fill = v2.RandomRotation(1, fill=90)._fill
        return [*found, *DataLoader(dataset, 13)]

    helpers.assert_equal_runs(run)


_LABELS: list[Callable[[int], Any]] = [str, bool, lambda n: n or True, lambda n: -n - 2**62, np.int64, np.float32]


@pytest.mark.parametrize("label", [*_LABELS, lambda n: [n, "a"], lambda n: {"n": n}, torch.tensor])
def test_labels_of_any_kind(label: Callable[[int], Any], root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES["eval"]())
    dataset.samples = [(path, label(target)) for path, target in dataset.samples]
    assert check(dataset, seeds=1) == {TOGETHER: 26}


def test_a_label_of_too_many_bits(root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES["eval"]())
    dataset.samples = [(path, 2**63 - 1 + target) for path, target in dataset.samples]
    helpers.assert_equal_runs(lambda: helpers.attempt(lambda: [*DataLoader(dataset, 13)]))


@pytest.mark.parametrize("indices", [[0, 1, 99], [2, "a"], [np.int64(3), -1], [torch.tensor(2), True]])
def test_any_indices(indices: list[Any], root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES["train"]())
    helpers.assert_equal_runs(lambda: helpers.attempt(lambda: [*DataLoader(dataset, batch_sampler=[[4, 1], indices])]))
