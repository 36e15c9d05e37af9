"""Batches drawn in one go: equal to torchvision's in every bit, in order and in the random states that they leave."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, default_collate
from torchvision import transforms as T
from torchvision.datasets import ImageFolder, folder, wrap_dataset_for_transforms_v2
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import _functional_pil as F_pil

import accel
from accel.codec import opening
from accel.hooks import tv_files
from accel.hooks.compiled import batch, draws, program, tape
from tests.support import helpers

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TO_FLOAT = v2.ToDtype(torch.float32, scale=True)
TOGETHER = "drawn together"

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
}


@pytest.fixture(autouse=True)
def _of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "FEW", 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helpers.write_image_folder(tmp_path_factory.mktemp("compiled") / "photos", 13)


def ways(before: dict[str, int]) -> dict[str, int]:
    now = accel.stats()["ways"]
    return {name: n - before.get(name, 0) for name, n in now.items() if n != before.get(name, 0)}


def epochs(dataset: Any, **options: Any) -> Callable[[], list[Any]]:
    """Two epochs of a dataset, and the random states after each batch, and single numbers drawn in between."""

    def run() -> list[Any]:
        found: list[Any] = []
        for _ in range(2):
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
    found = check(dataset, **options)
    assert sum(found.values()) == 2 * 2 * len(dataset)
    assert all(name.startswith("one by one: ") and why in name for name in found), found


@pytest.mark.parametrize("name", PIPELINES)
def test_batches_are_torchvisions(name: str, root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES[name]())
    found: dict[str, int] = {}
    for size in (1, 4, 13):
        counted = check(dataset, seeds=7, batch_size=size)
        found = {way: found.get(way, 0) + counted.get(way, 0) for way in found | counted}
    assert found.keys() >= {TOGETHER}
    # images of several sizes lie in memory by how they were cropped
    alone = {way for way in found if way != TOGETHER}
    assert alone <= {"one by one: the collate function may look at how tensors lie in memory"}


def _as_lists(samples: list[Any]) -> tuple[list[Any], torch.Tensor]:
    return [image for image, _ in samples], torch.tensor([target for _, target in samples])


def _mixed(samples: list[Any]) -> Any:
    return v2.MixUp(num_classes=2)(*default_collate(samples))


@pytest.mark.parametrize("collate", [_as_lists, _mixed, list])
@pytest.mark.parametrize("name", ["train", "train of v2", "erased", "v2 on Pillow images"])
def test_collate_functions_get_torchvisions_samples(collate: Any, name: str, root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES[name]())
    found = check(dataset, collate_fn=collate)
    assert (TOGETHER in found) == (name != "train of v2")


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("name", ["train", "train of v2"])
def test_workers_draw_from_their_own_seeds(context: str, name: str, root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES[name]())
    found = check(dataset, seeds=1, batch_size=7, num_workers=2, multiprocessing_context=context)
    assert found == {TOGETHER: 26}


def test_the_accelerators_backend_takes_drawn_batches(root: Path) -> None:
    run = epochs(ImageFolder(str(root), PIPELINES["train"]()))
    expected, states = helpers.run("torchvision", run)
    before = accel.stats()["ways"]
    actual, after = helpers.run("cuda", run, device="cpu")
    assert after == states
    helpers.assert_same(actual, expected)
    assert ways(before) == {TOGETHER: 26}


# -- datasets -----------------------------------------------------------------------------------------------


class Doubled(ImageFolder):
    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        return image, 2 * target


class Aside(ImageFolder):
    """Overrides nothing that makes a sample."""

    def about(self) -> str:
        return "photos"


class Attributed(ImageFolder):
    @property
    def transform(self) -> Any:
        return T.Compose([T.CenterCrop(20), T.ToTensor()])

    @transform.setter
    def transform(self, transform: Any) -> None:
        pass


class Delegating(Dataset[Any]):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)

    def __getitem__(self, index: int) -> Any:
        image, target = self.dataset[index]
        return image, target + 10

    def __len__(self) -> int:
        return len(self.dataset)


class FromMiddle(Subset[Any]):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.dataset[self.indices[-1 - index]] for index in indices]


def _own_loader(path: str) -> Any:
    return folder.pil_loader(path).rotate(90)


DATASETS: dict[str, tuple[Callable[[str, Any], Any], str]] = {
    "overridden": (lambda root, t: Doubled(root, t), "__getitem__ of its own"),
    "an attribute": (lambda root, t: Attributed(root, t), "other attributes"),
    "delegating": (lambda root, t: Delegating(ImageFolder(root, t)), "__getitem__ of its own"),
    "wrapped": (lambda root, t: wrap_dataset_for_transforms_v2(ImageFolder(root, t)), "__getitem__ of its own"),
    "another loader": (lambda root, t: ImageFolder(root, t, loader=_own_loader), "the loader"),
    "targets": (lambda root, t: ImageFolder(root, t, target_transform=lambda n: n + random.randint(0, 9)), "target_"),
    "a subclass of Subset": (lambda root, t: FromMiddle(ImageFolder(root, t), [3, 1, 2, 9]), "__getitem__ of its own"),
    "no transform": (lambda root, t: ImageFolder(root, T.Lambda(T.functional.pil_to_tensor)), "Lambda"),
}


@pytest.mark.parametrize("name", DATASETS)
def test_other_datasets_are_asked_for_their_samples(name: str, root: Path) -> None:
    make, why = DATASETS[name]
    options = {"batch_size": 1} if name == "no transform" else {}
    assert_one_by_one(make(str(root), PIPELINES["train"]()), why, **options)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_subclass_that_overrides_nothing_is_drawn(root: Path, wrapped: bool) -> None:
    dataset: Any = Aside(str(root), PIPELINES["train"]())
    if wrapped:
        dataset = Subset(Subset(dataset, np.random.default_rng(1).permutation(13).tolist()), [-1, 3, 0, 5])
    assert check(dataset) == {TOGETHER: 4 * len(dataset)}
    assert not hasattr(ImageFolder, "__getitems__")
    assert ImageFolder.__getitem__ is folder.DatasetFolder.__getitem__


def test_a_replaced_getitem_is_called(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = folder.DatasetFolder.__getitem__
    dataset = ImageFolder(str(root), PIPELINES["train"]())
    assert check(dataset, seeds=1) == {TOGETHER: 26}
    monkeypatch.setattr(folder.DatasetFolder, "__getitem__", lambda self, index: (own(self, index)[0], -1))
    assert_one_by_one(dataset, "other methods")


def test_a_dataset_may_change_between_batches(root: Path) -> None:
    def run() -> list[Any]:
        transform: Any = PIPELINES["train"]()
        dataset = ImageFolder(str(root), transform)
        crop, flip, _, normalize = transform.transforms
        found = [*DataLoader(dataset, 5)]
        crop.scale, flip.p, normalize.mean = (0.5, 0.6), 0.9, [0.1, 0.2, 0.3]
        found += DataLoader(dataset, 5)
        normalize.mean[1] = 0.7
        found += DataLoader(dataset, 5)
        crop.size = (20, 24)
        transform.transforms[1] = T.RandomVerticalFlip()
        found += DataLoader(dataset, 5)
        dataset.samples = dataset.samples[::-2]
        found += DataLoader(dataset, 5)
        dataset.transform = T.Compose([T.Resize((9, 9)), transform.transforms[2]])
        return [*found, *DataLoader(dataset, 5)]

    before = accel.stats()["ways"]
    helpers.assert_equal_runs(run)
    assert ways(before).keys() == {TOGETHER}


@pytest.mark.parametrize("make", [v2.Pad, partial(v2.RandomCrop, 30), v2.RandAugment])
def test_a_fill_that_is_changed_behind_its_name(make: Callable[..., Any], root: Path) -> None:
    def run() -> list[Any]:
        filled = make(2, fill=3)
        dataset = ImageFolder(str(root), v2.Compose([v2.Resize((32, 32)), filled, v2.PILToTensor()]))
        found = [*DataLoader(dataset, 13)]
        filled._fill = v2.RandomRotation(1, fill=90)._fill
        return [*found, *DataLoader(dataset, 13)]

    helpers.assert_equal_runs(run)


@pytest.mark.parametrize("label", [str, lambda n: [n, "a"], lambda n: {"n": n}, np.float32, torch.tensor])
def test_labels_of_any_kind(label: Callable[[int], Any], root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES["eval"]())
    dataset.samples = [(path, label(target)) for path, target in dataset.samples]
    assert check(dataset, seeds=1) == {TOGETHER: 26}


@pytest.mark.parametrize("indices", [[0, 1, 99], [2, "a"], [np.int64(3), -1], [torch.tensor(2), True]])
def test_any_indices(indices: list[Any], root: Path) -> None:
    dataset = ImageFolder(str(root), PIPELINES["train"]())
    helpers.assert_equal_runs(lambda: helpers.attempt(lambda: [*DataLoader(dataset, batch_sampler=[[4, 1], indices])]))


# -- transforms ---------------------------------------------------------------------------------------------


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
    assert_one_by_one(ImageFolder(str(root), T.Compose(steps)), "erased")


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


# -- errors -------------------------------------------------------------------------------------------------


def _png(path: Path) -> None:
    helpers.picture(40, 50).save(path, "PNG")


BROKEN: dict[str, Callable[[Path], Any]] = {
    "gone": Path.unlink,
    "no picture": lambda path: path.write_bytes(b"nothing"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:300]),
    "another format": _png,
    "too small": lambda path: helpers.picture(8, 50).save(path, "JPEG"),
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", BROKEN)
def test_errors_are_torchvisions_and_leave_its_states(name: str, workers: int, tmp_path: Path) -> None:
    place = helpers.write_image_folder(tmp_path / "photos", 9)
    dataset = ImageFolder(str(place), T.Compose([T.RandomHorizontalFlip(), T.RandomCrop(30), T.ToTensor()]))
    BROKEN[name](place / "cat" / "002.jpg")

    def run() -> list[Any]:
        found: list[Any] = []
        batches = iter(DataLoader(dataset, 4, num_workers=workers))
        for _ in range(3):
            result = helpers.attempt(lambda: next(batches))
            failed = isinstance(result[0], type)
            found += [result[0] if failed else result, helpers.random_states() if not workers else ()]
        return found

    expected, _ = helpers.run("torchvision", run)
    actual, _ = helpers.run("cpu", run)
    if name == "cut":  # decoding is later, by design, and fails later
        actual, expected = actual[2:], expected[2:]
        actual, expected = actual[::2], expected[::2]
    helpers.assert_same(actual, expected)


def test_notes_name_the_sample_as_before(root: Path, tmp_path: Path) -> None:
    place = helpers.write_image_folder(tmp_path / "photos", 6, {3: helpers.undecodable()})
    dataset = ImageFolder(str(place), PIPELINES["train"]())
    texts = []
    for target_transform in (None, int):  # in one go, and one by one
        dataset.target_transform = target_transform
        with accel.image_backend("cpu"), pytest.raises(accel.DecodeError) as caught:
            _ = [images + 0 for images, _ in DataLoader(dataset, 6)]
        texts.append((str(caught.value), getattr(caught.value, "__notes__", [])))
        with accel.image_backend("cpu"), pytest.raises(accel.DecodeError) as caught:
            _ = [*DataLoader(dataset, 6, num_workers=1)]
        texts.append((str(caught.value).rpartition("accel.errors")[2], []))
    assert texts[:2] == texts[2:]
    assert "dataset index 3" in texts[0][0]


def test_replaced_files(tmp_path: Path) -> None:
    place = helpers.write_image_folder(tmp_path / "photos", 6, {3: b"no picture", 4: helpers.undecodable()})
    dataset = ImageFolder(str(place), PIPELINES["eval"]())
    with accel.image_backend("cpu", on_error="replace"):
        images, _ = next(iter(DataLoader(dataset, 6)))
        black = (torch.zeros(3, 1, 1) - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
        assert [number for number in range(6) if torch.equal(images[number], black.expand(3, 32, 32))] == [3, 4]


# -- the checks at first use --------------------------------------------------------------------------------


def test_a_tape_tells_what_torch_draws() -> None:
    torch.manual_seed(11)
    torch.rand(600)  # the generator's next block of numbers is made on the way
    told = tape.Tape(torch.get_rng_state(), 1500)
    bounds = (0.08, 1.0), (-0.3, 0.29), (0.0, 1.0)
    for number in range(450):
        assert torch.empty(1).uniform_(*bounds[number % 3]).item() == told.uniform(bounds[number % 3])
        assert torch.exp(torch.empty(1).uniform_(*bounds[number % 3])).item() == told.exp(bounds[number % 3])
        limit = 1 + number * number * 1000
        assert torch.randint(0, limit, (1,)).item() == told.below(limit)
    drawn = torch.get_rng_state()
    assert torch.equal(told.after(), drawn)
    torch.manual_seed(11)
    torch.rand(600)
    told.commit()
    assert torch.equal(torch.get_rng_state(), drawn)


@pytest.mark.parametrize(
    ("owner", "name", "why"),
    [
        (draws.Flip, "draw", "something else"),
        (draws.ResizedCrop, "place", "something else"),
        (tape.Tape, "exp", "torch"),
    ],
)
def test_what_differs_is_found_before_it_is_used(
    owner: Any, name: str, why: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = getattr(owner, name)

    def wrong(self: Any, *given: Any) -> Any:
        found = own(self, *given)
        if name == "draw":
            given[0].row[-1] = not given[0].row[-1]
        elif name == "place":
            found = (found[0], found[1], found[2], max(found[3] - 1, 1)) if given[1:] == (3, 400) else found
        else:
            found = float(np.nextafter(np.float32(found), np.float32(9)))
        return found

    monkeypatch.setattr(owner, name, wrong)
    monkeypatch.setattr(program, "_programs", {})
    tape.agrees.cache_clear()
    try:
        assert_one_by_one(ImageFolder(str(root), PIPELINES["train"]()), why)
    finally:
        tape.agrees.cache_clear()


def test_explain_and_stats_say_which_way(root: Path) -> None:
    with accel.image_backend("cpu"):
        dataset = ImageFolder(str(root), PIPELINES["train"]())
        state = helpers.random_states()
        assert "drawn in one go" in accel.explain(dataset)
        assert "drawn in one go" in accel.explain(DataLoader(dataset))
        assert accel.explain(dataset.transform).startswith("Compose: compiled")
        assert "not compiled: Lambda" in accel.explain(T.Compose([T.Lambda(abs)]))
        assert "one by one: Doubled has" in accel.explain(Doubled(str(root), PIPELINES["train"]()))
        assert helpers.random_states() == state
        images, _ = next(iter(DataLoader(dataset, 4)))
        assert "compiled:" in accel.explain(images)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batch_size": None}, "no batches"),
        ({}, "so few"),
        ({"batch_size": 8, "collate_fn": list}, "in memory"),
    ],
)
def test_explain_knows_what_a_loader_asks_for(
    options: dict[str, Any], why: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "FEW", 4)
    loader = DataLoader(ImageFolder(str(root), PIPELINES["train of v2"]()), **options)
    with accel.image_backend("cpu"):
        assert "one by one" in accel.explain(loader)
        assert why in accel.explain(loader)
        assert "drawn in one go" in accel.explain(DataLoader(loader.dataset, 4))


def test_a_batch_of_few_is_made_one_by_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = check(ImageFolder(str(root), PIPELINES["train"]()), batch_size=5)
    assert found == {TOGETHER: 40, "one by one: a batch of so few would take longer": 12}


def test_files_that_were_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = helpers.write_image_folder(tmp_path / "photos", 8)
    _png(place / "dog" / "006.jpg")
    dataset = ImageFolder(str(place), PIPELINES["train"]())
    read, own = [], opening._file
    monkeypatch.setattr(opening, "_file", lambda path, *more: read.append(path) or own(path, *more))
    with accel.image_backend("cpu"):
        _ = [*DataLoader(dataset, 8), *DataLoader(dataset, 8)]
    assert all(read.count(path) == (4 if "006" in path else 2) for path, _ in dataset.samples)
    assert tv_files.ahead.sources is None


def test_measuring_changes_nothing_of_how_batches_are_made(root: Path) -> None:
    before, recorded = accel.stats()["ways"], []
    loader = DataLoader(ImageFolder(str(root), PIPELINES["train"]()), 13)
    with accel.image_backend("cpu"):
        for epochs in (1, 4):
            with accel.profile(show=False) as report:
                _ = [batch for _ in range(epochs) for batch in loader]
            recorded.append(report.stages["record"]["count"])
            assert report.stages["read"]["count"] == epochs  # one for a batch
    assert ways(before) == {TOGETHER: 13 * 5}
    assert recorded[1] - recorded[0] == 3  # one for a batch
