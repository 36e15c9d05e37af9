"""Datasets that keep arrays: batches that are drawn in one go, from a copy of the array."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torchvision import datasets
from torchvision import transforms as T
from torchvision.transforms import v2

import accel
from accel.lazy.tensor import LazyTensor
from accel.recipes.rows import Pictures, Rows
from tests.hooks.compiled.kinds import COUNT, KINDS, LABELS, by_rows, made
from tests.support import helpers

NORMALIZE = (0.5,), (0.25,)
PIPELINES: dict[str, Callable[[], Any]] = {
    "train": lambda: T.Compose(
        [T.RandomCrop(28, padding=4), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(*NORMALIZE)]
    ),
    "train-v2": lambda: v2.Compose(
        [v2.RandomCrop(28, padding=4), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    ),
    "resized": lambda: T.Compose([T.RandomResizedCrop(40), T.RandomVerticalFlip(), T.PILToTensor()]),
    "eval": lambda: T.Compose([T.Resize(36), T.CenterCrop(32), T.ToTensor()]),
    "grey": lambda: T.Compose([T.Grayscale(3), T.RandomCrop(16), T.ToTensor()]),
    "nothing": lambda: T.ToTensor(),
}


def together() -> int:
    found: int = accel.stats()["ways"].get("drawn together", 0)
    return found


def epoch(dataset: Any, **options: Any) -> Callable[[], Any]:
    def run() -> Any:
        return list(DataLoader(dataset, 8, shuffle=True, **options))

    return run


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("kind", KINDS)
def test_equal(kind: str, pipeline: str) -> None:
    before = together()
    for seed in range(3):
        helpers.assert_equal_runs(epoch(KINDS[kind](PIPELINES[pipeline]())), seed)
    assert together() == before + 3 * COUNT


def test_workers() -> None:
    before = together()
    dataset = Subset(KINDS["cifar"](PIPELINES["train"]()), [*range(5, 31), -1, -COUNT])
    helpers.assert_equal_runs(epoch(dataset, num_workers=2))
    assert together() == before + 28


def test_rows_of_one_array() -> None:
    with accel.image_backend("cpu"):
        images, _ = next(iter(DataLoader(KINDS["mnist"](PIPELINES["train"]()), 8)))
        assert isinstance(images, LazyTensor)
        assert isinstance(images.lazy.recipes, Rows)
        assert isinstance(images.lazy.recipes.sources, Pictures)
        assert "stage 2" not in accel.explain(images)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy(kind: str) -> None:
    """What happens to the dataset after a batch was drawn does not change it."""

    def run() -> Any:
        dataset = KINDS[kind](PIPELINES["train"]())
        if isinstance(dataset.data, np.ndarray):
            dataset.data = dataset.data.copy()
        found = []
        for images, targets in DataLoader(dataset, 8):
            dataset.data[:] = 255 - dataset.data[:]
            found += [images.clone(), targets]
        return found

    helpers.assert_equal_runs(run)


class Inverted(datasets.CIFAR10):  # type: ignore[misc]
    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        return 1 - image, target


def with_attribute(name: str, value: Any) -> Callable[[], Any]:
    def make() -> Any:
        dataset = KINDS["cifar"](PIPELINES["train"]())
        setattr(dataset, name, value)
        return dataset

    return make


def inverted() -> Any:
    return made(Inverted, PIPELINES["train"](), data=by_rows(), targets=LABELS.tolist())


@pytest.mark.parametrize(
    "make",
    [
        inverted,
        with_attribute("target_transform", lambda target: target + 1),
        with_attribute("data", list(by_rows())),
        with_attribute("data", torch.from_numpy(by_rows()).numpy().view(np.ma.MaskedArray)),
        with_attribute("targets", (*LABELS.tolist(),)),
        with_attribute("transform", lambda image: torch.tensor(image.size)),
        lambda: ConcatDataset([with_attribute("train", True)(), inverted()]),
        lambda: made(datasets.MNIST, PIPELINES["train"](), data=torch.from_numpy(by_rows()), targets=LABELS.tolist()),
    ],
)
def test_others_go_one_by_one(make: Callable[[], Any]) -> None:
    before = together()
    try:
        epoch(make())()
    except ValueError as error:
        pytest.skip(f"torchvision's own: {error}")  # MNIST with colours, by an older Pillow
    helpers.assert_equal_runs(epoch(make()))
    assert together() == before


@pytest.mark.parametrize("index", [COUNT, -COUNT - 1, True, 1.5])
def test_an_index_that_is_none(index: Any) -> None:
    dataset = KINDS["cifar"](PIPELINES["train"]())
    outcomes = []
    for backend in ("torchvision", "cpu"):
        with accel.image_backend(backend):
            torch.manual_seed(0)
            loader = DataLoader(dataset, sampler=[0, 1, 2, index], batch_size=4)
            outcomes.append((helpers.outcome(lambda loader=loader: next(iter(loader))[1]), torch.get_rng_state()))
    helpers.assert_same(outcomes[0], outcomes[1])


def test_whoever_makes_images_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    original, calls = Image.fromarray, []
    monkeypatch.setattr(Image, "fromarray", lambda *given, **more: calls.append(1) or original(*given, **more))
    with accel.image_backend("cpu"):
        list(DataLoader(KINDS["cifar"](PIPELINES["train"]()), 8))
    assert len(calls) == COUNT
