"""Images that come to a composition one by one: equal to torchvision's, and so are the random states after each."""

import random
import threading
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder, wrap_dataset_for_transforms_v2
from torchvision.io import ImageReadMode, read_image
from torchvision.transforms import _functional_pil as F_pil
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.hooks.compiled import compositions, single
from tests.hooks.compiled.support import MEAN, PIPELINES, STD, TO_FLOAT, epochs, ways
from tests.support import helpers
from tests.support.loaders import started_by

COMPILED = "alone, compiled"
pytestmark = pytest.mark.filterwarnings("ignore:.*image decoding and encoding:DeprecationWarning")


@pytest.fixture(autouse=True)
def _from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "FIRST", 0)
    monkeypatch.setattr(compositions, "AGAIN", 0)
    monkeypatch.setattr(compositions, "_RESTLESS", 1000)


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
        about = [
            (lazy.interleaved, lazy.view, lazy.made, lazy.recipes[0].source.shared) if lazy else 0 for lazy in states
        ]
        return [(type(image), tuple(image.stride()), known) for image, known in zip(images, about, strict=True)]


def assert_not_compiled(dataset: Any, why: str, **options: Any) -> None:
    found = check(dataset, **options)
    assert found
    assert all(name.startswith("alone, not compiled: ") and why in name for name in found), found


@pytest.mark.parametrize("name", PIPELINES)
def test_images_are_torchvisions(name: str, root: Path, thorough: bool) -> None:
    seeds = 20 if thorough else 5
    found = check(Own(root, PIPELINES[name]()), seeds)
    assert found.get(COMPILED, 0) > seeds * 13 // 2, found


@pytest.mark.parametrize("name", ["train", "train of v2", "eval of v2", "two views of v2"])
@pytest.mark.parametrize("read", [Image.open, lambda path: Image.open(path).convert("L")])
def test_grey_images_and_files(name: str, read: Any, root: Path) -> None:
    own = PIPELINES[name]().transforms
    found = check(
        Own(root, type(PIPELINES[name]())([each for each in own if type(each).__name__ != "Normalize"]), read)
    )
    assert found.get(COMPILED, 0) > 10 or name == "two views of v2"  # not of grey ones


@pytest.mark.parametrize(
    "transform",
    [
        v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), TO_FLOAT, v2.Normalize(MEAN, STD)]),
        v2.Compose([v2.CenterCrop(20), v2.RandomVerticalFlip(), v2.RandomInvert()]),
        v2.Compose([v2.RandomCrop(40), v2.Resize(30), v2.ToImage(), v2.RandomGrayscale(0.5)]),
    ],
)
def test_tensors(transform: Any, root: Path) -> None:
    found = check(Own(root, transform, lambda path: read_image(path, ImageReadMode.RGB)), seeds=5)
    assert found[COMPILED] > 2 * 13
    changed = Own(root, transform, lambda path: F.hflip(read_image(path, ImageReadMode.RGB)))
    assert_not_compiled(changed, "something was done to the tensor before")


def test_users_draws_in_between(root: Path) -> None:
    def draw() -> None:
        random.random()
        np.random.rand()  # noqa: NPY002
        torch.rand(3)

    assert check(Own(root, PIPELINES["train"](), between=draw), seeds=3) == {COMPILED: 39}
    draws = (torch.rand, lambda _: random.random(), lambda _: np.random.rand())  # noqa: NPY002
    for each in draws:
        turned = T.Lambda(lambda image, each=each: image.rotate(5) if each(1) < 0.5 else image)
        transform = T.Compose([T.RandomResizedCrop(20), turned, T.RandomHorizontalFlip(), T.ToTensor()])
        assert_not_compiled(Own(root, transform), "Lambda is not compiled")


def test_a_composition_in_another(root: Path) -> None:
    inner = T.Compose([T.RandomHorizontalFlip(), T.RandomApply([T.ColorJitter(0.3)], 0.5), T.ToTensor()])
    outer = T.Compose([T.Lambda(lambda image: image), inner])
    found = check(Own(root, outer))
    assert found == {COMPILED: 26, "alone, not compiled: Lambda is not compiled": 26}


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
        assert check(Own(root, made)) == {}
    assert check(Own(root, Twice(v2.RandomResizedCrop(20), v2.RandomHorizontalFlip(), v2.ToImage()))) == {}


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
        helpers.run("cpu", run)
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


def test_errors_are_torchvisions(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an image is smaller than its crop, and where Pillow thinks a crop too large; the states are, too."""
    large = T.Compose([T.RandomHorizontalFlip(), T.RandomCrop((70, 80)), T.RandomVerticalFlip(), T.ToTensor()])
    fits = T.Compose([T.RandomResizedCrop(40, (0.8, 1.0)), T.ToTensor()])

    def run(transform: Any) -> list[Any]:
        dataset = Own(root, transform)
        found: list[Any] = []
        for number in range(len(dataset)):
            found += [helpers.attempt(lambda: dataset[number][0].clone()), list(helpers.random_states())]  # noqa: B023
        return found

    helpers.assert_equal_runs(lambda: run(large))
    assert {type(each) for each in run(large)[::2]} == {tuple, torch.Tensor}
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)
    with pytest.warns(Image.DecompressionBombWarning):
        helpers.assert_equal_runs(lambda: run(fits))


class Labelled(Own):
    """Hands labels to its transform, beside the image."""

    def __init__(self, root: Path, transform: Any, *labels: Any) -> None:
        super().__init__(root, transform)
        self.labels = labels

    def __getitem__(self, index: int) -> Any:
        made = self.transform(self.read(self.paths[index]), *self.labels)
        assert type(made) is tuple
        assert all(one is other for one, other in zip(made[1:], self.labels, strict=True))
        return made


@pytest.mark.parametrize("labels", [(3,), (None, "cat"), (torch.tensor(3), 0.5, True), (torch.rand(3, 4, 4),)])
@pytest.mark.parametrize("name", [name for name in PIPELINES if name.endswith("v2")])
def test_labels_beside_an_image(name: str, labels: tuple[Any, ...], root: Path) -> None:
    assert check(Labelled(root, PIPELINES[name](), *labels)).get(COMPILED, 0) > 13


SAMPLES: dict[str, tuple[Callable[[Any], dict[str, Any]], bool]] = {
    "image and label": (lambda image: {"image": image, "label": 3}, True),
    "label and image": (lambda image: {"a": "cat", "b": None, "pixels": image}, True),
    "tensor": (lambda image: {"image": image, "label": torch.tensor(3)}, False),
    "nested": (lambda image: {"image": image, "more": {"label": 3}}, False),
    "tensor image": (lambda image: {"image": F.pil_to_tensor(image), "label": 3}, False),
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", ["train of v2", "v2 on Pillow images", "one of several of v2"])
def test_dictionaries_with_an_image(name: str, sample: str, root: Path) -> None:
    (make, compiled), transform = SAMPLES[sample], PIPELINES[name]()

    def run() -> list[Any]:
        found: list[Any] = []
        for path in sorted(root.rglob("*.jpg")):
            given = make(helpers.open_rgb(path))
            made = transform(given)
            assert made is not given
            found += [
                [*made],
                [torch.clone(each) if isinstance(each, torch.Tensor) else each for each in made.values()],
            ]
            found.append(list(helpers.random_states()))
        return found

    before = accel.stats()["ways"]
    helpers.assert_equal_runs(run)
    assert (COMPILED in ways(before, alone=True)) == compiled


def test_labels_that_are_transformed(root: Path) -> None:
    """An array becomes an image, too."""
    transform = v2.Compose([v2.RandomHorizontalFlip(), v2.ToImage(), v2.RandomVerticalFlip()])
    labels = [1, np.zeros((4, 5, 3), np.uint8), tv_tensors.Mask(torch.ones(60, 50)), [2]] * 3

    def run() -> list[Any]:
        found: list[Any] = []
        for path, label in zip(sorted(root.rglob("*.jpg")), labels, strict=False):
            image, other = transform(helpers.open_rgb(path), label)
            alone = transform(helpers.open_rgb(path))
            found += [image + 0, other, alone + 0, list(helpers.random_states())]
        return found

    before = accel.stats()["ways"]
    helpers.assert_equal_runs(run)
    assert ways(before, alone=True) == {COMPILED: 15}


def test_labels_of_what_takes_none(root: Path) -> None:
    """Version 1's transforms take an image only, and so does a Sequential."""
    for inner in (T.RandomHorizontalFlip(), nn.Sequential(v2.RandomHorizontalFlip()), v2.RandomApply([nn.Identity()])):
        transform = v2.Compose([v2.RandomResizedCrop(20), inner, v2.ToImage()])
        image = helpers.open_rgb(next(root.rglob("*.jpg")))
        with accel.image_backend("cpu"):
            assert accel.explain(transform).startswith("Compose: compiled.")
            torch.manual_seed(3)
            with pytest.raises(TypeError, match="positional argument"):
                _ = [transform(image, 3) for _ in range(20)]


def test_two_views_of_an_image(root: Path) -> None:
    transform = PIPELINES["two views"]()

    class Views(Own):
        def __getitem__(self, index: int) -> Any:
            image = self.read(self.paths[index])
            one, other = self.transform(image), self.transform(image)
            return torch.stack([one, other, self.transform(image.copy())]), np.asarray(image)

    assert check(Views(root, transform)) == {COMPILED: 78}


def test_an_image_that_was_computed_or_changed(root: Path) -> None:
    def read(path: str) -> Any:
        image = helpers.open_rgb(path)
        if "3" in path:
            image.paste((1, 2, 3), (0, 0, 9, 9))
        return image.resize((50, 40)) if "4" in path else F.to_pil_image(F.to_tensor(image)) if "5" in path else image

    check(Own(root, PIPELINES["train"](), read), seeds=3)


def test_other_datasets(root: Path) -> None:
    folders = [ImageFolder(str(root), PIPELINES["train of v2"](), loader=helpers.open_rgb) for _ in range(2)]
    for dataset in (folders[0], wrap_dataset_for_transforms_v2(folders[1])):
        before = accel.stats()["ways"]
        helpers.assert_equal_runs(epochs(dataset))
        assert ways(before, alone=True)[COMPILED] == 26


def test_a_dataset_that_changes_between_epochs(root: Path) -> None:
    dataset = Own(root, PIPELINES["train"]())

    def run() -> list[Any]:
        found: list[Any] = []
        for name in ("train", "eval", "jitter", "train"):
            dataset.transform = PIPELINES[name]()
            loader = DataLoader(dataset, 4)
            found += [torch.cat([images.mean((2, 3)) for images, _ in loader]), list(helpers.random_states())]
        return found

    helpers.assert_equal_runs(run)


@pytest.mark.parametrize("workers", ["fork", "spawn"])
def test_in_workers(workers: str, root: Path) -> None:
    dataset = Own(root, PIPELINES["train"]())
    helpers.assert_equal_runs(lambda: epochs(dataset, 1, num_workers=1, **started_by(workers))())


def test_threads(root: Path) -> None:
    """Two threads that call one composition: of what draws nothing the images are right, and all of them arrive."""
    still, drawing = Own(root, PIPELINES["eval"]()), Own(root, PIPELINES["jitter"]())
    expected = [still[number][0] for number in range(len(still))]
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            for place in [*range(number, 13), *range(number)]:
                if not torch.equal(still[place][0], expected[place]) or drawing[place][0].sum().isnan():
                    wrong.append(place)
        except Exception as error:
            wrong.append(error)

    with accel.image_backend("cpu"):
        for _ in range(5):
            threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
            _ = [thread.start() for thread in threads]
            _ = [thread.join() for thread in threads]
    assert not wrong


def test_what_changes_all_the_time_is_left_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compositions, "_RESTLESS", 3)
    monkeypatch.setattr(compositions, "AGAIN", 1 << 20)
    flip, chances = T.RandomHorizontalFlip(0.0), cycle([number / 13 for number in range(13)])

    def change() -> None:
        flip.p = next(chances)

    found = check(Own(root, T.Compose([flip, T.ToTensor()]), between=change))
    assert found == {COMPILED: 3, "alone, not compiled: it changes all the time": 1}  # the others 32 at a time


def test_the_first_images_are_not_compiled(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "FIRST", 16)
    assert check(Own(root, PIPELINES["train"]()), seeds=2) == {COMPILED: 10}


def test_compositions_go(root: Path) -> None:
    """What is known of a composition goes with it, unless it was compiled; and then there are never many."""
    dataset = Own(root, None)
    with accel.image_backend("cpu"):
        for _ in range(600):
            dataset.transform = T.Compose([T.CenterCrop(9), T.ToTensor()])
            _ = dataset[0]
    assert len(compositions._known) <= compositions._MOST
