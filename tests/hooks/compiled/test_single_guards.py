"""Compositions that change between two images, and what is around them: what was compiled is not used any more."""

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import _functional_pil as F_pil
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.hooks.compiled import compositions
from tests.hooks.compiled.alone import COMPILED, Own, assert_not_compiled, check
from tests.hooks.compiled.support import TO_FLOAT, ways
from tests.support import helpers, inside

pytestmark = pytest.mark.usefixtures("from_the_first")


class Flip(T.RandomHorizontalFlip):
    def forward(self, img: Any) -> Any:
        torch.rand(1)
        return super().forward(img)


class Everything(T.Compose):
    def __call__(self, img: Any) -> Any:
        return super().__call__(img.rotate(90))


class Twice(nn.Sequential):
    def forward(self, input: Any) -> Any:
        return super().forward(super().forward(input))


class Also(v2.Compose):
    def forward(self, *inputs: Any) -> Any:
        torch.rand(1)
        return super().forward(*inputs)


def test_subclasses(root: Path) -> None:
    assert_not_compiled(Own(root, T.Compose([T.RandomResizedCrop(20), Flip(), T.ToTensor()])), "Flip is not compiled")
    for composition in (Everything, Also):
        made = composition([v2.RandomResizedCrop(20), v2.RandomHorizontalFlip(), v2.PILToTensor()])
        assert check(Own(root, made)) == {"alone, function by function": 26}
    twice = Twice(v2.RandomResizedCrop(20), v2.RandomHorizontalFlip(), v2.ToImage())
    assert check(Own(root, twice)) == {"alone, function by function": 26}


def _train() -> Any:
    return T.Compose(
        [T.RandomResizedCrop(20), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)]
    )


def _train2() -> Any:
    return v2.Compose(
        [v2.ToImage(), v2.RandomResizedCrop(20), v2.RandomHorizontalFlip(), TO_FLOAT, v2.CenterCrop((10, 9))]
    )


def _train3() -> Any:
    return nn.Sequential(*_train2().transforms)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a chance": lambda own: setattr(own.transforms[-3], "p", 1.0),
    "a size": lambda own: setattr(own.transforms[-4], "size", (9, 31)),
    "an attribute in place": lambda own: setattr(own.transforms[-1], "mean", [0.1, 0.2, 0.3]),
    "a list in place": lambda own: own.transforms[-1].mean.__setitem__(1, 0.75),
    "another transform": lambda own: own.transforms.__setitem__(-1, T.RandomErasing(1.0)),
    "one more": lambda own: own.transforms.append(T.RandomErasing(1.0)),
    "one less": lambda own: own.transforms.pop(1),
    "another list": lambda own: setattr(own, "transforms", own.transforms[:-1]),
    "a hook": lambda own: own.transforms[1].register_forward_hook(lambda *_: torch.zeros(3, 2, 2)),
    "a hook before": lambda own: own.transforms[1].register_forward_pre_hook(lambda *_: (torch.rand(1), None)[1]),
    "a method of one": lambda own: setattr(own.transforms[-1], "forward", lambda image: image[:, :3]),
}


OF_SEQUENTIAL: dict[str, Callable[[Any], Any]] = {
    "a chance": lambda own: setattr(own[2], "p", 1.0),
    "another transform": lambda own: own.__setitem__(-1, v2.RandomErasing(1.0)),
    "one more": lambda own: own.append(v2.RandomErasing(1.0)),
    "one less": lambda own: own.pop(2),
    "a hook of a transform": lambda own: own[2].register_forward_hook(lambda *_: torch.zeros(3, 2, 2)),
    "a hook before": lambda own: own.register_forward_pre_hook(lambda *_: (torch.rand(1), None)[1]),
    "a hook": lambda own: own.register_forward_hook(lambda _, __, made: made[:, ::2] * torch.rand(1)),
    "its forward": lambda own: setattr(own, "forward", lambda image: own[0](image)[:, :3]),
}


def _by_class() -> Any:
    fill, dtype = {tv_tensors.Image: 5, "others": 3}, {tv_tensors.Image: torch.float32, "others": None}
    crop = v2.RandomCrop((70, 60), pad_if_needed=True, fill=fill)
    return v2.Compose([v2.ToImage(), crop, v2.ToDtype(dtype, scale=True)])


BY_CLASS: dict[str, Callable[[Any], Any]] = {
    "a fill": lambda own: own.transforms[1]._fill.__setitem__(tv_tensors.Image, 9),
    "a fill less": lambda own: own.transforms[1]._fill.pop(tv_tensors.Image),
    "a fill of another class": lambda own: setattr(own.transforms[1], "_fill", {torch.Tensor: 7, "others": 3}),
    "a dtype": lambda own: own.transforms[2].dtype.__setitem__(tv_tensors.Image, torch.float64),
    "a dtype of another class": lambda own: setattr(own.transforms[2], "dtype", {torch.Tensor: torch.float64}),
}


@pytest.mark.parametrize("name", BY_CLASS)
def test_parameters_by_class_that_are_changed_between_two_images(name: str, root: Path) -> None:
    assert_seen(_by_class, BY_CLASS[name], root)


@pytest.mark.parametrize("name", OF_SEQUENTIAL)
def test_a_sequential_that_is_changed_between_two_images(name: str, root: Path) -> None:
    assert_seen(_train3, OF_SEQUENTIAL[name], root)


@pytest.mark.parametrize("name", CHANGES)
def test_a_composition_that_is_changed_between_two_images(name: str, root: Path) -> None:
    """At each of some places among the images."""
    for made in (_train,) if "place" in name else (_train, _train2):
        assert_seen(made, CHANGES[name], root)


def assert_seen(made: Callable[[], Any], change: Callable[[Any], Any], root: Path) -> None:
    def run() -> list[Any]:
        found: list[Any] = []
        for place in (1, 5):
            transform = made()
            dataset = Own(root, transform)
            for number in range(9):
                if number == place:
                    change(transform)
                try:
                    image = dataset[number][0]
                    found += [image.clone() if isinstance(image, torch.Tensor) else np.asarray(image)]
                except (TypeError, RuntimeError, ValueError, AttributeError) as error:
                    found.append(type(error).__name__)
                found.append(list(helpers.random_states()))
        return found

    before = accel.stats()["ways"]
    helpers.assert_equal_runs(run)
    assert ways(before, alone=True)[COMPILED] >= 6


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (T.RandomHorizontalFlip, "forward"),
        (T.RandomResizedCrop, "get_params"),
        (T.ToTensor, "__call__"),
        (torch.nn.Module, "_call_impl"),
        (torch.nn.Sequential, "__iter__"),
        (F, "resized_crop"),
        (F, "to_tensor"),
        (F_pil, "hflip"),
        (torch, "rand"),
        (torch, "randint"),
        (torch, "empty"),
    ],
)
def test_what_is_replaced_between_two_images(
    owner: Any, name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By something that draws, as is seen by the random state."""
    transform: Any = T.Compose([T.RandomResizedCrop(20), T.RandomHorizontalFlip(1.0), T.ToTensor()])
    if owner is nn.Sequential:
        transform = nn.Sequential(v2.RandomResizedCrop(20), v2.PILToTensor())
    dataset = Own(root, transform)

    def run() -> list[Any]:
        found = [dataset[0][0].clone(), dataset[1][0].clone()]
        own = vars(owner)[name]
        plain = own.__func__ if isinstance(own, staticmethod) else own

        def instead(*args: Any, **kwargs: Any) -> Any:
            torch.bernoulli(torch.full((2,), 0.5))
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, staticmethod(instead) if isinstance(own, staticmethod) else instead)
        found += [dataset[2][0].clone(), list(helpers.random_states())]
        monkeypatch.setattr(owner, name, own)
        return [*found, dataset[3][0].clone(), list(helpers.random_states())]

    before = accel.stats()["ways"]
    if owner in (torch, F_pil):  # which the ways to draw and to flip of ``tv_transforms`` do not look at
        _ = [each.sum() for each in helpers.run("cpu", run)[0] if isinstance(each, torch.Tensor)]
    else:
        helpers.assert_equal_runs(run)
    now = ways(before, alone=True)
    assert now[COMPILED] == 3
    assert sum(now.values()) == 4


def test_a_policys_space_that_is_changed_in_place(root: Path) -> None:
    dataset = Own(root, v2.Compose([v2.TrivialAugmentWide(), v2.ToImage()]))
    space = v2.TrivialAugmentWide._AUGMENTATION_SPACE

    def run() -> list[Any]:
        found = [dataset[number][0].clone() for number in range(4)]
        with pytest.MonkeyPatch.context() as patched:
            for name in set(space) - {"Invert"}:
                patched.setitem(space, name, (lambda *_: None, False))
            found += [dataset[number][0].clone() for number in range(4)]
        return [*found, dataset[4][0].clone(), list(helpers.random_states())]

    before = accel.stats()["ways"]
    helpers.assert_equal_runs(run)
    assert ways(before, alone=True)[COMPILED] == 9


def test_settings_between_two_images(root: Path) -> None:
    dataset = Own(root, T.Compose([T.RandomResizedCrop(20), T.ToTensor()]))

    def run() -> list[Any]:
        found = [dataset[0][0].clone()]
        torch.set_default_dtype(torch.float64)
        try:
            found.append(dataset[1][0].clone())
        finally:
            torch.set_default_dtype(torch.float32)
        with torch.inference_mode():
            found.append(dataset[2][0].clone())
        handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: torch.rand(1) and None)
        try:
            found.append(dataset[3][0].clone())
        finally:
            handle.remove()
        return [*found, dataset[4][0].clone(), list(helpers.random_states())]

    helpers.assert_equal_runs(run)


def test_what_changes_all_the_time_is_left_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside.restless_from(monkeypatch, 3)
    monkeypatch.setattr(compositions, "AGAIN", 1 << 20)
    flip, chances = T.RandomHorizontalFlip(0.0), cycle([number / 13 for number in range(13)])

    def change() -> None:
        flip.p = next(chances)

    found = check(Own(root, T.Compose([flip, T.ToTensor()]), between=change))
    assert found == {COMPILED: 3, "alone, not compiled: it changes all the time": 23}
