"""What is not torchvision's own as it came: transforms, functions, settings. Batches then go their usual way."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder, folder
from torchvision.transforms import _functional_pil as F_pil
from torchvision.transforms import v2

import accel
from tests.hooks.compiled.support import PIPELINES, TOGETHER, assert_one_by_one, check
from tests.support import helpers


class OwnFlip(T.RandomHorizontalFlip):
    def forward(self, img: Any) -> Any:
        return super().forward(img) if random.random() < 0.5 else img


class Jumpy:
    """Draws from each of the three generators."""

    def __call__(self, image: Any) -> Any:
        chosen = random.random() + np.random.rand() + torch.rand(1).item()  # noqa: NPY002
        return image.transpose(1) if chosen < 1.5 else image


def _hooked() -> T.RandomHorizontalFlip:
    flip = T.RandomHorizontalFlip()
    flip.register_forward_hook(lambda module, args, result: result.transpose(1))
    return flip


def _shadowed() -> T.RandomHorizontalFlip:
    flip = T.RandomHorizontalFlip()
    flip.forward = lambda img: img  # type: ignore[method-assign]
    return flip


STEPS: dict[str, tuple[Callable[[], Any], str]] = {
    "a subclass": (OwnFlip, "OwnFlip"),
    "a hook": (_hooked, "hooks"),
    "a method of one": (_shadowed, "methods of one"),
    "a user's own": (Jumpy, "Jumpy"),
    "a lambda": (lambda: T.Lambda(lambda image: image.rotate(180)), "Lambda"),
    "a mix": (T.AugMix, "AugMix"),
    "not finite": (lambda: T.RandomErasing(value=float("nan")), "not finite"),
}


@pytest.mark.parametrize("last", [T.RandomHorizontalFlip, partial(T.RandomCrop, 20), partial(T.CenterCrop, 20)])
def test_nothing_leads_what_was_erased(last: Callable[[], Any], root: Path) -> None:
    steps = [T.Resize((32, 32)), T.ToTensor(), T.RandomErasing(0.5, (0.2, 0.4)), last()]
    assert check(ImageFolder(str(root), T.Compose(steps)), seeds=4) == {TOGETHER: 4 * 26}


def test_no_resize_leads_colours_that_were_drawn(root: Path) -> None:
    drawn = v2.RandomApply([v2.ColorJitter(0.4)], 0.2)
    check(ImageFolder(str(root), v2.Compose([v2.PILToTensor(), drawn, v2.RandomResizedCrop(20)])), seeds=4)


@pytest.mark.parametrize("name", STEPS)
def test_other_transforms_are_called(name: str, root: Path) -> None:
    make, why = STEPS[name]
    crop, _, to_tensor, normalize = PIPELINES["train"]().transforms
    between = [to_tensor, make(), normalize] if name == "not finite" else [make(), to_tensor, normalize]
    assert_one_by_one(ImageFolder(str(root), T.Compose([crop, *between])), why)


def _set(owner: Any, name: str, value: Any) -> Callable[[pytest.MonkeyPatch], AbstractContextManager[Any]]:
    def enter(patch: pytest.MonkeyPatch) -> AbstractContextManager[Any]:
        patch.setattr(owner, name, value(getattr(owner, name)))
        return nullcontext()

    return enter


def _double(_: Any) -> AbstractContextManager[Any]:
    torch.set_default_dtype(torch.float64)  # which a fixture takes back
    return nullcontext()


def _on_all(_: Any) -> AbstractContextManager[Any]:
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)

    class Removing:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None:
            handle.remove()

    return Removing()


def _grown(own: Any, image: Any) -> Any:
    return 3 * own(image)


SURROUNDINGS: dict[str, tuple[Callable[[Any], AbstractContextManager[Any]], str]] = {
    "dtype": (_double, "default"),
    "device": (lambda _: torch.device("cpu"), "mode of torch"),
    "hooks on all": (_on_all, "hooks on all"),
    "a function": (_set(T.functional, "to_tensor", lambda own: lambda image: 2 * own(image)), "replaced"),
    "forward": (
        _set(T.RandomHorizontalFlip, "forward", lambda own: lambda self, image: own(self, image).transpose(1)),
        "replaced",
    ),
    "get_params": (
        _set(T.RandomResizedCrop, "get_params", lambda own: staticmethod(lambda *given: (1, 2, 30, 40))),
        "replaced",
    ),
    "a mock": (_set(T.functional, "to_tensor", lambda own: partial(_grown, own)), "replaced"),
    "randperm": (_set(torch, "randperm", lambda own: lambda n, **more: own(n, **more)), "replaced"),
    "Pillow's hue": (_set(F_pil, "adjust_hue", lambda own: lambda image, factor: own(image, -factor)), "replaced"),
    "another class's": (
        _set(T.RandomHorizontalFlip, "forward", lambda own: T.RandomVerticalFlip.forward),
        "records something else",
    ),
    "loader": (_set(folder, "pil_loader", lambda own: lambda path: own(path).transpose(0)), "replaced"),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_what_is_changed_around_transforms_counts(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = ImageFolder(str(root), PIPELINES["train"]())
    assert check(dataset, seeds=1) == {TOGETHER: 26}
    enter, why = SURROUNDINGS[name]
    with accel.image_backend("cpu"), monkeypatch.context() as patch, enter(patch):
        assert_one_by_one(dataset, why)
    torch.set_default_dtype(torch.float32)
    assert check(dataset, seeds=1) == {TOGETHER: 26}


def test_a_forked_generator_is_drawn_from(root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES["train"]())

    def run() -> Iterator[Any]:
        yield from DataLoader(dataset, 5)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(4)
            yield next(iter(DataLoader(dataset, 5)))
        yield next(iter(DataLoader(dataset, 5, generator=torch.Generator().manual_seed(3), shuffle=True)))

    helpers.assert_equal_runs(lambda: list(run()))
