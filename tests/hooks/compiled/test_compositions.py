"""Compositions at random, users' own transforms among them: batches, labels and random states are torchvision's."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder
from torchvision.transforms import InterpolationMode, v2

import accel
from accel.hooks.compiled import single
from tests.hooks.compiled.support import MEAN, STD, TO_FLOAT, TOGETHER, ways, with_states
from tests.support import helpers


class Own:
    """A user's own: it draws from a generator, and may turn the image then."""

    def __init__(self, generator: str) -> None:
        self.generator = generator

    def __call__(self, image: Any) -> Any:
        drawn = {"torch": lambda: torch.rand(1).item(), "random": random.random, "NumPy": np.random.rand}
        return T.functional.hflip(image) if drawn[self.generator]() < 0.5 else image

    def __repr__(self) -> str:
        return f"Own({self.generator})"


def own_label(target: int) -> float:
    return target + random.random() + float(torch.rand(())) + np.random.rand()  # noqa: NPY002


class Composer:
    """Makes compositions. ``user``: with transforms of the user's among them."""

    def __init__(self, seed: int, *, user: bool) -> None:
        self.rng = random.Random(seed)
        self.v: Any = self.rng.choice((T, v2))
        self.user = user

    def pipeline(self) -> Any:
        rng = self.rng
        steps = [self.step(0) for _ in range(rng.randint(1, 5))]
        tensors = rng.random() < 0.35
        if tensors:
            steps.insert(rng.randint(0, len(steps)), v2.ToImage() if self.v is v2 else T.PILToTensor())
        ends = [[T.Resize((24, 20)), T.ToTensor()], [T.RandomResizedCrop(20), T.PILToTensor()]]
        if tensors:
            ends = [[T.Resize((24, 20)), T.ConvertImageDtype(torch.float32)], [T.RandomResizedCrop(20)]]
        if self.v is v2:
            ends = [[v2.Resize((24, 20)), v2.ToImage(), TO_FLOAT], [v2.RandomResizedCrop(20), v2.ToImage()]]
        steps += rng.choice(ends)
        values = isinstance(steps[-1], (T.ToTensor, T.ConvertImageDtype, v2.ToDtype))
        if values and rng.random() < 0.5:
            steps.append(self.v.Normalize(MEAN, STD))
        if values and rng.random() < 0.3:
            steps.append(self.v.RandomErasing(rng.random(), value=rng.choice((0, 0.3, (0.1, 0.2, 0.3)))))
        if rng.random() < 0.3 and all(isinstance(step, nn.Module) for step in steps):
            return nn.Sequential(*steps)
        return self.v.Compose(steps)

    def some(self, depth: int) -> list[Any]:
        return [self.step(depth + 1) for _ in range(self.rng.randint(1, 3))]

    def step(self, depth: int) -> Any:
        rng, v = self.rng, self.v
        if self.user and rng.random() < 0.3:
            return Own(rng.choice(("torch", "random", "NumPy")))
        if depth < 2 and rng.random() < 0.3:
            return self.container(depth)
        makers = [*_STEPS, *(_OF_V2 if v is v2 else ())]
        return rng.choice(makers)(v, rng)

    def container(self, depth: int) -> Any:
        rng, v, some = self.rng, self.v, self.some(depth)
        modules = [each for each in some if isinstance(each, nn.Module)]
        chances = rng.choice((None, [rng.random() + 0.1 for _ in some]))
        made: list[Callable[[], Any]] = [
            lambda: v.RandomApply(some, rng.choice((0.0, 0.3, 0.5, 1.0))),
            lambda: v.RandomApply(nn.ModuleList(modules), rng.random()) if modules else v.RandomApply(some),
            lambda: v.RandomChoice(some, chances),
            lambda: v.RandomOrder(some),
            lambda: v.Compose(some),
            lambda: nn.Sequential(*modules),
        ]
        return rng.choice(made)()


def _spread(rng: random.Random, most: float) -> tuple[float, float]:
    low, high = sorted((rng.uniform(-most, most), rng.uniform(-most, most)))
    return low, high


def _mode(rng: random.Random) -> InterpolationMode:
    return rng.choice((InterpolationMode.NEAREST, InterpolationMode.BILINEAR))


def _fill(rng: random.Random) -> Any:
    return rng.choice((0, 7, (1, 2, 3)))


Make = Callable[[Any, random.Random], Any]
_STEPS: list[Make] = [
    lambda v, r: v.RandomResizedCrop(r.randint(8, 40), (r.uniform(0.05, 0.5), 1.0), (0.5, r.uniform(0.6, 2))),
    lambda v, r: v.RandomResizedCrop((r.randint(8, 40), 30), (0.9, 1.3)),
    lambda v, r: v.Compose([v.Resize((34, 36)), v.RandomCrop(r.randint(20, 34), r.choice((None, 2, (1, 2, 3, 4))))]),
    lambda v, r: v.Resize(r.choice((20, 50, (30, 41)))),
    lambda v, r: v.RandomCrop(r.choice((30, 60))),  # some images are smaller: an error, at some place
    lambda v, r: v.CenterCrop(r.choice((20, (50, 30), 200))),
    lambda v, r: v.Pad(r.choice((1, (2, 3), (0, 1, 2, 3))), _fill(r), r.choice(("constant", "edge", "reflect"))),
    lambda v, r: v.RandomHorizontalFlip(r.random()),
    lambda v, r: v.RandomVerticalFlip(r.choice((0.0, 0.5, 1.0))),
    lambda v, r: v.RandomRotation(_spread(r, 200), _mode(r), r.random() < 0.3, r.choice((None, (5, 3))), _fill(r)),
    lambda v, r: v.RandomRotation((90, 90), expand=r.random() < 0.5),
    lambda v, r: v.RandomAffine(
        _spread(r, 90),
        r.choice((None, (r.random(), r.random()))),
        r.choice((None, (0.5, 1.5))),
        r.choice((None, 5, (1, 2), (-3, 2, -9, 9))),
        _mode(r),
        _fill(r),
    ),
    lambda v, r: v.RandomPerspective(r.uniform(0.1, 0.9), r.random(), _mode(r), _fill(r)),
    lambda v, r: v.ColorJitter(*[r.choice((0, r.uniform(0, 0.9))) for _ in range(3)], r.choice((0, 0.3))),
    lambda v, r: v.RandomGrayscale(r.random()),
    lambda v, r: v.Grayscale(3),
    lambda v, r: v.GaussianBlur(r.choice((3, 5, (7, 3))), (r.uniform(0.1, 1), 2.0)),
    lambda v, r: v.RandomInvert(r.random()),
    lambda v, r: v.RandomPosterize(r.randint(1, 7), r.random()),
    lambda v, r: v.RandomSolarize(r.randint(0, 200), r.random()),
    lambda v, r: v.RandomAutocontrast(r.random()),
    lambda v, r: v.RandomEqualize(r.random()),
    lambda v, r: v.RandomAdjustSharpness(r.uniform(0, 3), r.random()),
    lambda v, r: v.RandAugment(r.randint(0, 3), r.randint(0, 30), interpolation=_mode(r)),
    lambda v, r: v.TrivialAugmentWide(r.randint(5, 31), _mode(r), r.choice((None, [1, 2, 3]))),
    lambda v, r: v.AutoAugment(r.choice(list(T.AutoAugmentPolicy)), _mode(r), r.choice((None, [1, 2, 3]))),
]
_OF_V2: list[Make] = [
    lambda v, r: v.RandomPhotometricDistort(p=r.random()),
    lambda v, r: v.RandomChannelPermutation(),
    lambda v, r: v.RandomZoomOut(_fill(r), (1, r.uniform(1, 2)), r.random()),
    lambda v, r: v.RandomResize(20, 60),
    lambda v, r: v.RandomShortestSize([20, 30, 40], r.choice((None, 60))),
    lambda v, r: v.ScaleJitter((40, 50), (0.8, 1.4)),
    lambda v, r: v.RGB(),
    lambda v, r: v.JPEG(r.choice((50, (20, 90)))),
    lambda v, r: v.Identity(),
]


def _epoch(dataset: Any, **options: Any) -> Callable[[], Any]:
    """An epoch of it, or the error it ends in, and the random states after each batch."""

    def run() -> Any:
        found: list[Any] = []

        def batches() -> None:
            for batch in DataLoader(dataset, **{"batch_size": 5, "shuffle": True, **options}):
                found.extend((batch, list(helpers.random_states())))

        ended = helpers.attempt(batches)
        return found, ended and ended[0], list(helpers.random_states())

    return run


def _compare(root: Path, seed: int, runs: int = 1, **options: Any) -> dict[str, int]:
    """Compare the composition of a seed with torchvision; how many images went which way."""
    user = seed % 4 == 3
    transform = Composer(seed, user=user).pipeline()
    target_transform = own_label if user and seed % 8 == 7 else (None, int, str)[seed % 3]
    dataset = ImageFolder(str(root), transform, target_transform)
    before = accel.stats()["ways"]
    for run in range(runs):
        try:
            helpers.assert_equal_runs(_epoch(dataset, **options), run)
        except AssertionError as error:
            raise AssertionError(f"composition {seed}, run {run}: {transform}") from error
    return ways(before)


def test_compositions(root: Path, thorough: bool) -> None:
    together = 0
    seeds = range(400 if thorough else 28)
    for seed in seeds:
        found = _compare(root, seed, 20 if thorough else 1)
        together += list(found) == [TOGETHER]
        assert seed % 4 != 3 or TOGETHER not in found or "Own" not in str(Composer(seed, user=True).pipeline())
    assert together > len(seeds) // 3


@pytest.mark.filterwarnings("ignore:.*image decoding and encoding:DeprecationWarning")
def test_compositions_of_single_images(root: Path, thorough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dataset of the user's own calls them, with labels beside them where v2 takes some."""
    monkeypatch.setattr(single, "FIRST", 0)
    paths = sorted(map(str, root.rglob("*.jpg")))

    def run(transform: Any, rng: random.Random) -> list[Any]:
        found: list[Any] = []
        for number, path in enumerate(paths):
            labels = rng.sample((number, "a", None, torch.tensor([number]), 0.5), rng.randint(0, 2))
            given = labels if isinstance(transform, v2.Compose) else ()
            made = helpers.attempt(lambda: transform(helpers.open_rgb(path), *given))  # noqa: B023
            image = made[0] if type(made) is tuple else made
            if isinstance(image, torch.Tensor):
                found += [isinstance(image, tv_tensors.Image), (image + 0).contiguous()]
                found += made[1:] if type(made) is tuple else ()
            else:
                found.append(made)
            found.append(list(helpers.random_states()))
        return found

    seeds = range(2000, 2060 if thorough else 2028)
    compiled = 0
    for seed in seeds:
        transform = Composer(seed, user=seed % 4 == 3).pipeline()
        before = accel.stats()["ways"]
        try:
            helpers.assert_equal_runs(lambda: run(transform, random.Random(seed)), seed)  # noqa: B023
        except AssertionError as error:
            raise AssertionError(f"composition {seed}: {transform}") from error
        compiled += "alone, compiled" in ways(before, alone=True)
    assert compiled > len(seeds) // 3


@pytest.mark.sweep
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_compositions_in_workers(root: Path, context: str) -> None:
    options = {"num_workers": 2, "multiprocessing_context": context, "collate_fn": with_states}
    for seed in range(1000, 1060 if context == "fork" else 1006):
        _compare(root, seed, **options)
