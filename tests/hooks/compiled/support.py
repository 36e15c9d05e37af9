"""What the tests of drawn batches have in common: pipelines, and epochs compared with torchvision's."""

import random
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2

import accel
from tests.support import helpers

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TO_FLOAT = v2.ToDtype(torch.float32, scale=True)
TOGETHER = "drawn together"
_BILINEAR = InterpolationMode.BILINEAR

PIPELINES: dict[str, Callable[[], Any]] = {
    "train": lambda: T.Compose(
        [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)]
    ),
    "train of v2": lambda: v2.Compose(
        [v2.ToImage(), v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), TO_FLOAT, v2.Normalize(MEAN, STD)]
    ),
    "v2 on Pillow images": lambda: v2.Compose(
        [v2.RandomResizedCrop((24, 40)), v2.RandomVerticalFlip(0.3), v2.PILToTensor(), TO_FLOAT, v2.RandomErasing(0.5)]
    ),
    "eval": lambda: T.Compose([T.Resize(48), T.CenterCrop(32), T.ToTensor(), T.Normalize(MEAN, STD)]),
    "eval of v2": lambda: v2.Compose([v2.ToImage(), v2.Resize(48), v2.CenterCrop(40), TO_FLOAT, v2.ToPureTensor()]),
    "retries": lambda: T.Compose(
        [T.RandomResizedCrop(20, (0.9, 1.4), (0.2, 5.0), InterpolationMode.NEAREST), T.ToTensor()]
    ),
    "no crop fits": lambda: T.Compose([T.RandomResizedCrop(20, (3.0, 4.0)), T.ToTensor()]),
    "padded": lambda: T.Compose(
        [T.Resize((32, 32)), T.RandomCrop(32, 4, padding_mode="reflect"), T.ToTensor(), T.RandomHorizontalFlip(0.1)]
    ),
    "padded by v2": lambda: v2.Compose(
        [v2.Resize((36, 36)), v2.ToImage(), v2.RandomCrop((36, 32), padding=(0, 0, 4, 0), fill=3), TO_FLOAT]
    ),
    "padded where needed": lambda: T.Compose(
        [T.RandomCrop((70, 60), (1, 2), pad_if_needed=True, fill=(1, 2, 3)), T.RandomHorizontalFlip(), T.ToTensor()]
    ),
    "padded where needed by v2": lambda: v2.Compose(
        [
            v2.ToImage(),
            v2.RandomGrayscale(0.4),
            v2.RandomCrop((70, 60), 1, pad_if_needed=True, fill={tv_tensors.Image: 5, "others": 3}),
            v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
        ]
    ),
    "whole or not": lambda: T.Compose([T.Resize((40, 40)), T.RandomCrop(40), T.RandomCrop((40, 30)), T.PILToTensor()]),
    "erased": lambda: T.Compose(
        [
            T.CenterCrop(50),
            T.ToTensor(),
            T.RandomErasing(0.7, (0.2, 0.9), value=[0.1, 0.2, 0.3]),
            T.Normalize(MEAN, STD),
        ]
    ),
    "grey": lambda: T.Compose([T.Grayscale(), T.Pad((1, 2, 3, 4), 9), T.RandomResizedCrop(16, (0.5, 1)), T.ToTensor()]),
    "jitter": lambda: T.Compose(
        [T.RandomResizedCrop(24), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomGrayscale(0.3), T.ToTensor()]
    ),
    "jitter of v2": lambda: v2.Compose(
        [v2.Resize((24, 24)), v2.ColorJitter(0.4, (1, 3)), v2.RandomGrayscale(), v2.PILToTensor()]
    ),
    "applied": lambda: T.Compose(
        [
            T.RandomApply([T.RandomResizedCrop(24), T.RandomApply([T.ColorJitter(0.3)], 0.6), T.Pad(2)], 0.7),
            T.RandomApply(torch.nn.ModuleList([T.RandomHorizontalFlip(), T.CenterCrop(28)]), 1),
            T.RandomCrop((20, 16)),
            T.ToTensor(),
        ]
    ),
    "applied by v2": lambda: v2.Compose(
        [v2.Resize((24, 24)), v2.RandomApply([v2.ColorJitter(0.3), v2.Pad(0)]), v2.PILToTensor()]
    ),
    "RandAugment": lambda: T.Compose([T.RandomResizedCrop(24), T.RandAugment(fill=[1, 2, 3]), T.ToTensor()]),
    "RandAugment of v2": lambda: v2.Compose([v2.RandAugment(3, 7), v2.CenterCrop(24), v2.PILToTensor()]),
    "TrivialAugment": lambda: T.Compose([T.TrivialAugmentWide(), T.Resize((24, 24)), T.ToTensor()]),
    "TrivialAugment of v2": lambda: v2.Compose([v2.CenterCrop(24), v2.TrivialAugmentWide(), v2.PILToTensor()]),
    "in Sequential": lambda: torch.nn.Sequential(
        T.RandomResizedCrop(16, antialias=True), torch.nn.Sequential(T.RandomVerticalFlip(1)), v2.ToImage(), TO_FLOAT
    ),
    "composed of compositions": lambda: v2.Compose(
        [T.Compose([T.RandomHorizontalFlip(), v2.RandomResizedCrop(16)]), v2.ToImage(), v2.Identity(), TO_FLOAT]
    ),
    "two views": lambda: T.Compose(
        [
            T.RandomResizedCrop(24),
            T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
            T.RandomGrayscale(0.2),
            T.RandomApply([T.GaussianBlur(5, (0.1, 2.0))]),
            T.RandomSolarize(128, 0.2),
            T.ToTensor(),
        ]
    ),
    "two views of v2": lambda: v2.Compose(
        [
            v2.RandomResizedCrop((24, 28)),
            v2.RandomApply([v2.ColorJitter(0.8, hue=0.2), v2.GaussianBlur((3, 7), (0.3, 0.9))]),
            v2.RandomPosterize(3),
            v2.ToImage(),
            TO_FLOAT,
        ]
    ),
    "turned": lambda: T.Compose(
        [T.RandomRotation(30, expand=True), T.Resize((24, 24)), T.RandomRotation((80, 100), _BILINEAR), T.ToTensor()]
    ),
    "turned by v2": lambda: v2.Compose(
        [v2.RandomResizedCrop(24), v2.RandomRotation((-9, 5), fill=(1, 2, 3), center=(3, 4)), v2.PILToTensor()]
    ),
    "warped": lambda: T.Compose(
        [
            T.RandomResizedCrop(24),
            T.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), (1, 2, 3, 4), fill=7),
            T.RandomPerspective(0.4, 0.6),
            T.PILToTensor(),
        ]
    ),
    "warped by v2": lambda: v2.Compose(
        [
            v2.RandomPerspective(fill=(1, 2, 3)),
            v2.RandomResizedCrop(24),
            v2.RandomAffine((3, 9), (0.3, 0), shear=4, interpolation=_BILINEAR),
            v2.PILToTensor(),
        ]
    ),
    "AutoAugment": lambda: T.Compose([T.RandomResizedCrop(24), T.AutoAugment(fill=[1, 2, 3]), T.ToTensor()]),
    "AutoAugment of v2": lambda: v2.Compose(
        [v2.AutoAugment(v2.AutoAugmentPolicy.SVHN, _BILINEAR), v2.RandomResizedCrop(24), v2.PILToTensor()]
    ),
    "one of several": lambda: T.Compose(
        [
            T.RandomChoice([T.RandomResizedCrop(24), T.Compose([T.Resize(30), T.CenterCrop(24)])], p=[3, 1]),
            T.RandomOrder(
                [T.ColorJitter(0.3), T.RandomInvert(), T.RandomChoice([T.RandomEqualize(), T.RandomPosterize(2)])]
            ),
            T.RandomAdjustSharpness(2.0),
            T.ToTensor(),
        ]
    ),
    "one of several of v2": lambda: v2.Compose(
        [
            v2.RandomChoice([v2.RandomResizedCrop(24), v2.Resize((24, 24))], p=[0.3, 0.7]),
            v2.RandomOrder([v2.RandomAutocontrast(), v2.RandomHorizontalFlip(), v2.RandomChannelPermutation()]),
            v2.PILToTensor(),
            v2.RandomChoice([v2.RandomHorizontalFlip(), v2.RandomCrop(24, 2)]),
            v2.RandomOrder([v2.RandomInvert(), v2.RandomErasing()]),
        ]
    ),
    "for detection": lambda: v2.Compose(
        [
            v2.RandomPhotometricDistort(p=0.7),
            v2.RandomZoomOut(fill=9),
            v2.RandomShortestSize([30, 40, 50], 90),
            v2.RandomResize(26, 40),
            v2.ScaleJitter((40, 50), (0.9, 1.2)),
            v2.Resize((24, 24)),
            v2.PILToTensor(),
        ]
    ),
    "contrast of tensors": lambda: v2.Compose(
        [v2.ToImage(), v2.RandomResizedCrop(24), v2.ColorJitter(contrast=0.5), v2.RandomGrayscale(1.0), TO_FLOAT]
    ),
    "two views of tensors": lambda: v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(24),
            v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([v2.GaussianBlur(5, (0.1, 2.0))]),
            v2.RandomChannelPermutation(),
            v2.RandomSolarize(128, 0.2),
            TO_FLOAT,
            v2.Normalize(MEAN, STD),
        ]
    ),
    "moved after colours": lambda: v2.Compose(
        [
            v2.ToImage(),
            v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
            v2.RandomResizedCrop(28),
            v2.RandomGrayscale(0.3),
            v2.RandomHorizontalFlip(),
            v2.RandomCrop(24, (0, 1, 2, 3)),
            TO_FLOAT,
            v2.Normalize(MEAN, STD),
        ]
    ),
    "moved after some were erased": lambda: T.Compose(
        [
            T.Resize((32, 32)),
            T.ToTensor(),
            T.RandomErasing(0.5, (0.2, 0.4)),
            T.RandomVerticalFlip(0.7),
            T.Pad(2),
            T.RandomCrop(30, 1),
            T.RandomCrop(30),
            T.CenterCrop(24),
        ]
    ),
    "v1 on tensors": lambda: T.Compose(
        [
            T.PILToTensor(),
            T.RandomVerticalFlip(),
            T.RandomResizedCrop(24, (0.5, 1.5), antialias=True),
            T.RandomApply([T.RandomAffine(10, fill=3)]),
            T.AutoAugment(fill=(1, 2, 3)),
            T.ConvertImageDtype(torch.float32),
            T.RandomErasing(),
        ]
    ),
}


def ways(before: dict[str, int], alone: bool = False) -> dict[str, int]:
    """Images of batches by their way since then; ``alone``: those that came to a composition one by one."""
    now = {name: n for name, n in accel.stats()["ways"].items() if name.startswith("alone") == alone}
    return {name: n - before.get(name, 0) for name, n in now.items() if n != before.get(name, 0)}


def with_states(samples: list[Any]) -> Any:
    """A batch, and the random states in the worker that made it."""
    return default_collate(samples), helpers.random_states()


def epochs(dataset: Any, count: int = 2, **options: Any) -> Callable[[], list[Any]]:
    """Epochs of a dataset, and the random states after each batch, and single numbers drawn in between."""

    def run() -> list[Any]:
        found: list[Any] = []
        for _ in range(count):
            for each in DataLoader(dataset, **{"batch_size": 5, "shuffle": True, **options}):
                found += [each, list(helpers.random_states()), torch.rand(1), torch.randn(1), random.random()]
        return found

    return run


def check(dataset: Any, seeds: int = 2, **options: Any) -> dict[str, int]:
    """Compare with torchvision, and tell how many images went which way."""
    before = accel.stats()["ways"]
    for seed in range(seeds):
        helpers.assert_equal_runs(epochs(dataset, **options), seed)
    return ways(before)


def assert_one_by_one(dataset: Any, why: str, **options: Any) -> None:
    before = accel.stats()["ways"]
    found = check(dataset, **options)
    alone = ways(before, alone=True)
    assert sum(found.values()) + sum(alone.values()) == 2 * 2 * len(dataset)
    if "__getitem__" in why:  # such images are counted by how their composition recorded them
        assert not found
        assert alone
        return
    assert all(name.startswith("one by one: ") and why in name for name in found), found
