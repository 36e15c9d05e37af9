"""Images that come to a composition one by one: equal to torchvision's, and so are the random states after each."""

import gc
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder, wrap_dataset_for_transforms_v2
from torchvision.io import ImageReadMode, read_image
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.hooks.compiled import single
from accel.hooks.compiled.compositions import Composition
from tests.hooks.compiled.alone import COMPILED, Own, assert_not_compiled, check
from tests.hooks.compiled.support import MEAN, PIPELINES, STD, TO_FLOAT, epochs, ways
from tests.support import helpers

pytestmark = [
    pytest.mark.usefixtures("from_the_first"),
    pytest.mark.filterwarnings("ignore:.*image decoding and encoding:DeprecationWarning"),
]


@pytest.mark.parametrize("name", PIPELINES)
def test_images_are_torchvisions(name: str, root: Path, thorough: bool) -> None:
    seeds = 20 if thorough else 2
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
    assert found == {COMPILED: 26}, "an image has one way, that of what recorded it last"


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
    assert ways(before, alone=True) == {COMPILED: 15, "alone, function by function": 9}


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

    assert check(Views(root, transform)) == {COMPILED: 104}, "three views, and the image itself"


def test_an_image_that_was_computed_or_changed(root: Path) -> None:
    def read(path: str) -> Any:
        image = helpers.open_rgb(path)
        if "3" in path:
            image.paste((1, 2, 3), (0, 0, 9, 9))
        return image.resize((50, 40)) if "4" in path else F.to_pil_image(F.to_tensor(image)) if "5" in path else image

    check(Own(root, PIPELINES["train"](), read), seeds=3)


def test_other_datasets(root: Path) -> None:
    folders = [ImageFolder(str(root), PIPELINES["train of v2"](), loader=helpers.open_rgb) for _ in range(2)]
    loader = "one by one: the loader is not torchvision's"
    for dataset, way in ((folders[0], loader), (wrap_dataset_for_transforms_v2(folders[1]), COMPILED)):
        before = accel.stats()["ways"]
        helpers.assert_equal_runs(epochs(dataset))
        assert ways(before, alone=way == COMPILED) == {way: 26}


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


def test_in_workers(root: Path) -> None:
    dataset = Own(root, PIPELINES["train"]())
    helpers.assert_equal_runs(epochs(dataset, 1, num_workers=1, multiprocessing_context="fork"))


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


def test_the_first_images_are_not_compiled(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "FIRST", 16)
    too_few = "alone, not compiled: it is only compiled after 16 images"
    assert check(Own(root, PIPELINES["train"]()), seeds=2) == {COMPILED: 10, too_few: 16}


def test_compositions_go(root: Path) -> None:
    """What is known of a composition goes with it, unless it was compiled; and then there are never many."""
    dataset = Own(root, None)
    with accel.image_backend("cpu"):
        for _ in range(600):
            dataset.transform = T.Compose([T.CenterCrop(9), T.ToTensor()])
            _ = dataset[0]
    assert sum(type(each) is Composition for each in gc.get_objects()) <= 256
