"""Compositions at random, of all of torchvision's transforms with unusual options, users' own among them."""

import random
from collections.abc import Callable
from typing import Any

import torch
from PIL import Image
from torch import nn
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import v2

from tests.hooks.compiled.own import DRAWS, OftenFlipped, Own, OwnModule, OwnRotation, OwnV2, noisy, through_numpy
from tests.hooks.compiled.support import MEAN, STD, TO_FLOAT

Make = Callable[[Any, random.Random], Any]


class Composer:
    """Makes compositions. ``user``: with transforms of the user's among them; ``tensors``: of images that are some."""

    def __init__(self, seed: int, *, user: bool, tensors: bool = False) -> None:
        self.rng = random.Random(seed)
        self.v: Any = self.rng.choice((T, v2))
        self.user, self.tensors, self.floats = user, tensors, False
        self.mixed, self.left = self.rng.random() < 0.15, self.rng.random() < 0.3

    def pipeline(self) -> Any:
        """A composition that makes a tensor, of one size mostly."""
        rng, v = self.rng, self.v
        steps = [self.step(0) for _ in range(rng.randint(0, 4))]
        if not self.tensors and rng.random() < 0.45:
            self.tensors = True
            steps.append(v2.ToImage() if v is v2 and rng.random() < 0.7 else T.PILToTensor())
            steps += [self.step(0) for _ in range(rng.randint(0, 3))]
        if self.tensors and rng.random() < 0.3:
            steps.append(self._to_float())
            self.floats = True
            steps += [self.step(0) for _ in range(rng.randint(0, 3))]
        steps += self._to_one_size()
        if not self.tensors:
            steps += rng.choice(([T.ToTensor()], [T.PILToTensor()], [v2.ToImage()], [v2.ToImage(), TO_FLOAT]))
            self.floats = isinstance(steps[-1], (T.ToTensor, v2.ToDtype))
            self.tensors = True
        elif not self.floats and rng.random() < 0.6:
            steps.append(self._to_float())
            self.floats = True
        if self.floats and rng.random() < 0.5:
            steps.append(v.Normalize(MEAN, STD))
        steps += [rng.choice(_AT_THE_END)(v, rng) for _ in range(rng.choice((0, 0, 0, 1, 2))) if self.floats]
        if rng.random() < 0.1:
            steps.append(v2.ToPureTensor())
        if rng.random() < 0.2 and all(isinstance(step, nn.Module) for step in steps):
            return nn.Sequential(*steps)
        return rng.choice((T, v2) if self.mixed else (v,)).Compose(steps)

    def _to_float(self) -> Any:
        if self.v is T:
            return T.ConvertImageDtype(torch.float32)
        return self.rng.choice(
            (TO_FLOAT, TO_FLOAT, v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, True))
        )

    def _to_one_size(self) -> list[Any]:
        rng, v = self.rng, self.v
        size = rng.choice(((24, 20), (28, 28)))
        return rng.choice(
            (
                [v.Resize(size)],
                [v.RandomResizedCrop(size)],
                [v.Resize(30), v.CenterCrop(28)],
                [v.Resize(26), v.RandomCrop(size, 4)],
                [v.RandomCrop(size, pad_if_needed=True)],
                [v.CenterCrop(32), v.RandomHorizontalFlip()],
            )
        )

    def some(self, depth: int) -> list[Any]:
        return [self.step(depth + 1) for _ in range(self.rng.randint(1, 3))]

    def step(self, depth: int) -> Any:
        rng, v = self.rng, self.v
        if self.mixed and rng.random() < 0.4:
            v = rng.choice((T, v2))
        if self.user and rng.random() < 0.3:
            return self.own()
        if depth < 3 and rng.random() < 0.25:
            return self.container(depth)
        of_v2 = v is v2
        makers = rng.choice(([*_USUAL, *_USUAL_V2 * of_v2], [*_RARE, *_RARE_V2 * of_v2, *_LEFT * self.left]))
        if self.floats:
            makers = [make for make in makers if make not in (*_OF_LEVELS, *_LEFT_OF_LEVELS)] + _OF_FLOATS * of_v2
        return rng.choice(makers)(v, rng)

    def own(self) -> Any:
        rng, generator = self.rng, self.rng.choice(list(DRAWS))
        made: list[Callable[[], Any]] = [
            lambda: Own(generator),
            lambda: OwnModule(generator),
            lambda: self.v.Lambda(Own(generator)),
            OftenFlipped,
            lambda: OwnRotation((-20, 30)),
            lambda: self.v.Lambda(through_numpy),
            *([lambda: OwnV2()] if self.v is v2 else []),
            *([lambda: self.v.Lambda(noisy)] if self.floats else []),
        ]
        return rng.choice(made)()

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


def _mode(rng: random.Random) -> Mode:
    return rng.choice((Mode.NEAREST, Mode.BILINEAR))


def _of_resize(rng: random.Random) -> Mode:
    return rng.choice((Mode.BILINEAR, Mode.BILINEAR, Mode.BICUBIC, Mode.NEAREST, Mode.NEAREST_EXACT))


def _fill(rng: random.Random) -> Any:
    return rng.choice((0, 7, (1, 2, 3), [9, 8, 7], 1.0))


def _padding(rng: random.Random) -> str:
    return rng.choice(("constant", "edge", "reflect", "symmetric"))


def _chance(rng: random.Random) -> float:
    return rng.choice((0.0, 1.0, 0.5, rng.random(), 1))


def _range(rng: random.Random) -> Any:
    low, high = sorted((rng.uniform(0, 2), rng.uniform(0, 2)))
    return rng.choice((0, rng.uniform(0, 0.9), (low, high), [low, high], (high, high)))


# bits, levels: nothing of floats
_integers: list[Make] = [
    lambda v, r: v.RandomPosterize(r.randint(1, 7), r.random()),
    lambda v, r: v.RandomEqualize(r.random()),
    lambda v, r: v.RandomSolarize(r.randint(0, 200), r.random()),
    lambda v, r: v.RandAugment(r.randint(0, 3), r.randint(0, 30), interpolation=_mode(r)),
    lambda v, r: v.TrivialAugmentWide(r.randint(5, 31), _mode(r), r.choice((None, [1, 2, 3]))),
    lambda v, r: v.AutoAugment(r.choice(list(T.AutoAugmentPolicy)), _mode(r), r.choice((None, [1, 2, 3]))),
]

_USUAL: list[Make] = [
    lambda v, r: v.RandomResizedCrop(r.randint(8, 40), (r.uniform(0.05, 0.5), 1.0), (0.5, r.uniform(0.6, 2))),
    lambda v, r: v.RandomResizedCrop((r.randint(8, 40), 30), (0.9, 1.3)),
    lambda v, r: v.Compose([v.Resize((34, 36)), v.RandomCrop(r.randint(20, 34), r.choice((None, 2, (1, 2, 3, 4))))]),
    lambda v, r: v.Resize(r.choice((20, 50, (30, 41)))),
    lambda v, r: v.RandomCrop(r.choice((12, 18, 18, 30))),  # some images are smaller: an error, at some place
    lambda v, r: v.CenterCrop(r.choice((20, (50, 30), 90))),
    lambda v, r: v.Pad(r.choice((1, (2, 3), (0, 1, 2, 3))), _fill(r), _padding(r)),
    lambda v, r: v.RandomHorizontalFlip(r.random()),
    lambda v, r: v.RandomVerticalFlip(_chance(r)),
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
    lambda v, r: v.RandomAutocontrast(r.random()),
    lambda v, r: v.RandomAdjustSharpness(r.uniform(0, 3), r.random()),
    *_integers,
]
_USUAL_V2: list[Make] = [
    lambda v, r: v.RandomPhotometricDistort(p=r.random()),
    lambda v, r: v.RandomChannelPermutation(),
    lambda v, r: v.RandomZoomOut(_fill(r), (1, r.uniform(1, 2)), r.random()),
    lambda v, r: v.RandomResize(20, 60),
    lambda v, r: v.RandomShortestSize([20, 30, 40], r.choice((None, 60))),
    lambda v, r: v.ScaleJitter((40, 50), (0.8, 1.4)),
    lambda v, r: v.RGB(),
    lambda v, r: v.Identity(),
]
_jpeg: list[Make] = [lambda v, r: v.JPEG(r.choice((50, (20, 90), (70, 70))))]
_USUAL_V2 += _jpeg
_OF_LEVELS: list[Make] = [*_integers, *_jpeg]
# no program is made of these
_LEFT_OF_LEVELS: list[Make] = [
    lambda v, r: v.AugMix(
        r.randint(1, 6), r.randint(1, 3), r.choice((-1, 1, 2)), r.choice((1.0, 0.3)), r.random() < 0.8, _mode(r)
    ),
]
_LEFT: list[Make] = [
    lambda v, r: v.ElasticTransform(r.uniform(1, 80), r.choice((0.5, 2.0, [1.0, 3.0])), _mode(r), _fill(r)),
    lambda v, r: v.ElasticTransform(r.choice(([10.0, 40.0], 50.0)), 1.0),
    lambda v, r: v.Compose([v.TenCrop((18, 12)) if r.random() < 0.5 else v.FiveCrop(16), v.Lambda(_first)]),
    *_LEFT_OF_LEVELS,
]
_OF_FLOATS: list[Make] = [
    lambda v, r: v.GaussianNoise(r.uniform(-0.1, 0.2), r.choice((0.1, 0.0)), r.random() < 0.7),
    lambda v, r: v.RandomSolarize(r.random(), r.random()),
]
_RARE: list[Make] = [
    lambda v, r: v.RandomResizedCrop((r.randint(8, 40), 25), (0.2, 0.9), interpolation=_of_resize(r)),
    lambda v, r: v.RandomResizedCrop(r.randint(8, 40), antialias=r.random() < 0.5),
    lambda v, r: v.RandomResizedCrop(20, (1.5, 2.5), r.choice(((0.2, 0.4), (3.0, 4.0), (1.0, 1.0)))),
    lambda v, r: v.Resize(r.randint(10, 40), _of_resize(r), r.choice((None, 70)), r.random() < 0.5),
    lambda v, r: v.Resize((r.randint(1, 40), r.randint(1, 40)), _of_resize(r)),
    lambda v, r: v.RandomCrop(
        r.choice((20, (44, 30))), r.choice((None, 3, (1, 2), [4, 0, 0, 2])), r.random() < 0.5, _fill(r), _padding(r)
    ),
    lambda v, r: v.RandomRotation(r.choice((0, 180, (45, 45))), _mode(r), r.random() < 0.5, (0, 9.5), _fill(r)),
    lambda v, r: v.RandomRotation(r.uniform(1, 90), Mode.BICUBIC, fill=_fill(r)),
    lambda v, r: v.RandomAffine(0, (0.3, 0.0), None, None, _mode(r), 0, (3, 2)),
    lambda v, r: v.RandomAffine(r.uniform(1, 90), scale=(0.1, 0.4), shear=[-40, 40], fill=_fill(r), center=(0, 0)),
    lambda v, r: v.RandomPerspective(r.choice((0, 1, 0.5)), 1, _mode(r)),
    lambda v, r: v.ColorJitter(_range(r), _range(r), _range(r), r.choice((0, 0.5, (-0.1, 0.3), (0.1, 0.1)))),
    lambda v, r: v.GaussianBlur((r.choice((1, 3, 9)), 5), r.choice((0.3, (1.5, 1.5), (0.01, 9)))),
    lambda v, r: v.RandomSolarize(r.choice((0, 255, 127.5)), _chance(r)),
    lambda v, r: v.RandomAdjustSharpness(r.choice((0, 1, 7)), _chance(r)),
    lambda v, r: v.RandomGrayscale(_chance(r)),
    lambda v, r: v.RandomHorizontalFlip(_chance(r)),
    lambda v, r: nn.Identity(),
]
_RARE_V2: list[Make] = [
    lambda v, r: v.RandomPhotometricDistort((0.5, 1.5), (0.2, 0.9), (0.0, 2.0), (-0.5, 0.5), _chance(r)),
    lambda v, r: v.RandomZoomOut({Image.Image: 3, "others": 5}, (1.0, 3.0), 1.0),
    lambda v, r: v.RandomResize(20, 21, _of_resize(r), antialias=r.random() < 0.5),
    lambda v, r: v.RandomShortestSize(30, None, _of_resize(r)),
    lambda v, r: v.ScaleJitter((30, 30), (0.1, 2.0), _of_resize(r)),
    lambda v, r: v.Pad((2, 1), {tv_tensors.Image: 4, Image.Image: 6, "others": 1}),
    lambda v, r: v.RandomRotation(30, fill={tv_tensors.Image: 4, Image.Image: 6, "others": 1}),
]
_AT_THE_END: list[Make] = [
    lambda v, r: v.RandomErasing(r.random(), value=r.choice((0, 0.3, (0.1, 0.2, 0.3), [1, 2, 3], "random"))),
    lambda v, r: v.RandomErasing(1, (0.3, 1.0), (0.1, 8.0), r.choice((0, "random")), r.random() < 0.3),
    lambda v, r: v.RandomHorizontalFlip(),
    lambda v, r: v.ConvertImageDtype(r.choice((torch.float16, torch.float64, torch.float32))),
    lambda v, r: v.RandomCrop(16),
    lambda v, r: v.Lambda(noisy),
    lambda v, r: v.RandomApply([v.Normalize((0.1,), (0.7,))], 0.5),
]


def _first(crops: Any) -> Any:
    return crops[int(torch.randint(len(crops), (1,)))]
