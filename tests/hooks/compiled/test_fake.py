"""``FakeData``: batches that are drawn in one go, images and all."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset
from torchvision import datasets
from torchvision import transforms as T
from torchvision.transforms import v2

import accel
from accel.hooks.compiled import batch
from accel.hooks.compiled.stock import Refused
from accel.recipes.rows import Pictures
from tests.hooks.compiled.support import TOGETHER, assert_one_by_one, check, with_states
from tests.support import helpers

COUNT = 13
PIPELINES: dict[str, Callable[[], Any]] = {
    "train": lambda: T.Compose([T.RandomCrop(28, padding=4), T.RandomHorizontalFlip(), T.ToTensor()]),
    "train of v2": lambda: v2.Compose([v2.ToImage(), v2.RandomResizedCrop(20), v2.ToDtype(torch.float32, scale=True)]),
    "nothing": lambda: T.PILToTensor(),
}


def fake(shape: Any = (3, 32, 32), classes: int = 10, *, pipeline: str = "train", **options: Any) -> datasets.FakeData:
    return datasets.FakeData(COUNT, shape, classes, PIPELINES[pipeline](), **options)


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 40, 27), (1, 28, 28), [3, 32, 31]])
def test_equal(shape: Any, pipeline: str) -> None:
    assert check(fake(shape, pipeline=pipeline)) == {TOGETHER: 4 * COUNT}


@pytest.mark.parametrize("shape", [(3, 1, 1), (3, 1, 5), (1, 3, 5), (1, 2, 8), (3, 224, 224)])
def test_images_of_any_size(shape: Any) -> None:
    """torch draws few numbers otherwise than many."""
    assert check(fake(shape, pipeline="nothing")) == {TOGETHER: 4 * COUNT}


@pytest.mark.parametrize("classes", [1, 1000, 2**40])
@pytest.mark.parametrize("offset", [-5, 2**40, -(2**63) + 20])
def test_seeds_and_targets(offset: int, classes: int) -> None:
    assert check(fake((1, 4, 5), classes, pipeline="nothing", random_offset=offset)) == {TOGETHER: 4 * COUNT}


def test_of_a_subset_and_from_the_end() -> None:
    dataset = Subset(Subset(fake(), [*range(2, 11)]), [0, 3, -1, 5, np.int64(7)])
    assert check(dataset) == {TOGETHER: 4 * 5}
    assert check(Subset(fake(), [-1, -20, 3])) == {TOGETHER: 4 * 3}


def test_workers() -> None:
    assert check(fake(), num_workers=2, collate_fn=with_states) == {TOGETHER: 4 * COUNT}


def test_rows_of_one_array() -> None:
    with accel.image_backend("cpu"):
        images, _ = next(iter(DataLoader(fake(), 8)))
        assert isinstance(images.lazy.recipes.sources, Pictures)
        assert "drawn in one go" in str(accel.explain(fake()))


def test_what_devices_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their generators are left with the seed of the last image."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.random, "_seed_custom_device", seeds.append)
    last = []
    for backend in ("torchvision", "cpu"):
        with accel.image_backend(backend):
            list(DataLoader(fake(random_offset=70), 5))
            last.append(seeds[-1])
    assert last == [70 + COUNT - 1] * 2


class Longer(datasets.FakeData):  # type: ignore[misc]
    def __len__(self) -> int:
        return 2 * int(super().__len__())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Longer(COUNT, (3, 32, 32), transform=PIPELINES["train"]()), "replaced"),
        (lambda: fake(target_transform=torch.neg), "target_transform"),
        (lambda: fake(random_offset=0.5), "attributes"),
        (lambda: fake((1, 0, 4), pipeline="nothing"), "shape"),
        (lambda: fake((4, 9, 9), pipeline="nothing"), "shape"),
        (lambda: fake((9, 9), pipeline="nothing"), "shape"),
        (lambda: fake(random_offset=2**64), "raises"),
    ],
)
def test_others_go_one_by_one(make: Callable[[], Any], why: str) -> None:
    def run() -> Any:
        return helpers.attempt(lambda: list(DataLoader(make(), 5))), list(helpers.random_states())

    helpers.assert_equal_runs(run)
    with accel.image_backend("cpu"):
        refused = batch.fetched(make(), [*range(5)], stacks=True)
    assert isinstance(refused, Refused)
    assert why in str(refused)


@pytest.mark.parametrize("name", ["randn", "manual_seed", "randint", "get_rng_state"])
def test_a_function_that_is_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(torch, name)
    calls: list[int] = []

    def counted(*given: Any, **more: Any) -> Any:
        calls.append(1)
        return original(*given, **more)

    monkeypatch.setattr(torch, name, counted)
    assert_one_by_one(fake(), "replaced")
    assert calls


def test_whoever_makes_images_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(T.functional, "to_pil_image", lambda pic, mode=None: Image.new("RGB", (32, 32), 7))
    assert_one_by_one(fake(), "replaced")
