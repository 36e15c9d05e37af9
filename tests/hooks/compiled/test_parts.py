"""Compositions with callables of the user's: what lies between these is compiled, the rest is as it was."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageFilter
from torchvision import transforms as T

import accel
from accel.hooks.compiled import compositions
from tests.hooks.compiled.alone import Own, check
from tests.support import helpers

pytestmark = pytest.mark.usefixtures("from_the_first")


TO_FLOAT = T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)


class Blur:
    """MoCo's: draws by Python, and counts its calls."""

    calls = 0

    def __call__(self, image: Image.Image) -> Image.Image:
        type(self).calls += 1
        return image.filter(ImageFilter.GaussianBlur(radius=random.uniform(0.1, 2.0)))


def drawn_by_torch(image: Image.Image) -> Image.Image:
    return image.rotate(90) if torch.rand(1) < 0.5 else image


def painted(image: Image.Image) -> Image.Image:
    """Changes the image in place."""
    image.paste((1, 2, 3), (0, 0, 5, 5))
    return image


def begun() -> list[Any]:
    jitter = T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)
    return [T.RandomResizedCrop(20), T.RandomHorizontalFlip(), jitter, T.RandomGrayscale(0.2)]


PIPELINES: dict[str, Callable[[], T.Compose]] = {
    "moco": lambda: T.Compose([*begun(), T.RandomApply([Blur()], p=0.5), *TO_FLOAT]),
    "first": lambda: T.Compose([Blur(), *begun(), *TO_FLOAT]),
    "last": lambda: T.Compose([*begun(), *TO_FLOAT, lambda tensor: tensor + torch.rand(1)]),
    "by torch": lambda: T.Compose([*begun(), drawn_by_torch, *begun(), drawn_by_torch, *TO_FLOAT]),
    "in place": lambda: T.Compose([T.RandomCrop(20), T.RandomHorizontalFlip(0.3), painted, *TO_FLOAT]),
    "may change nothing": lambda: T.Compose([T.RandomHorizontalFlip(), T.RandomVerticalFlip(), painted, *TO_FLOAT]),
    "within": lambda: T.Compose([T.Compose([*begun(), Blur()]), T.Lambda(drawn_by_torch), T.Compose([*TO_FLOAT])]),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_equal_and_in_the_same_order(name: str, root: Path) -> None:
    """Tensors and random states; and the composition is named as not compiled, as long as the image stays lazy."""
    found = check(Own(root, PIPELINES[name]()))
    assert name == "within" or any(way.startswith("alone, not compiled: ") for way in found), found


def test_parts_are_those_of_the_list_as_it_is(root: Path) -> None:
    composition = PIPELINES["moco"]()
    paths = sorted(map(str, root.rglob("*.jpg")))

    def run() -> list[Any]:
        Blur.calls = 0
        made = [composition(Image.open(path).convert("RGB")) for path in paths]
        composition.transforms.insert(4, drawn_by_torch)
        made += [composition(Image.open(path).convert("RGB")) for path in paths]
        composition.transforms.pop(4)
        return [*made, Blur.calls]

    helpers.assert_equal_runs(run)
    with accel.image_backend("cpu"):
        run()
        assert compositions.of(composition).parts_of(composition) is None  # found with the list as it was
        parts = PIPELINES["moco"]()
        for path in 3 * paths:
            parts(Image.open(path).convert("RGB"))
        kinds = [type(part).__name__ for part in compositions.of(parts).parts_of(parts) or ()]
        assert kinds == ["Compose", "RandomApply", "Compose"]
