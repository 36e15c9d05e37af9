"""A state is never gone on from silently where it could not be exact: an error names what differs."""

import itertools
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader

import accel
from accel import errors, hooks
from accel.resuming import state
from bench.resume import cases
from bench.resume.cases import Case
from tests.support import helpers

pytestmark = pytest.mark.filterwarnings("ignore")  # of loaders with more workers than cores


@pytest.fixture(autouse=True)
def _switched_on() -> Iterator[None]:
    with accel.image_backend("cpu"):
        yield


def made(dataset: Any, **options: Any) -> Any:
    return DataLoader(dataset, **{"batch_size": 4, "shuffle": True, **options})


def saved(loader: Any, count: int = 3) -> Any:
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    return loader.state_dict()


def refused(loader: Any, state: Any, match: str) -> None:
    """Loading or going on raises, each time, and names what differs; a loader that refused is as it was."""
    found = errors.attempt(loader.load_state_dict, state)
    if isinstance(found, accel.ResumeError):
        assert match in str(found), found
        assert len([next(batches) for batches in [iter(loader)] for _ in range(2)]) == 2
        return
    assert found is None
    for _ in range(2):
        with pytest.raises(accel.ResumeError, match=match):
            next(iter(loader))


DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "batch size": ({"batch_size": 5}, "batch_size was 4 and is 5"),
    "workers": ({"num_workers": 1}, "num_workers was 2 and is 1"),
    "start method": ({"multiprocessing_context": "spawn"}, "start_method was 'fork' and is 'spawn'"),
    "sampler": ({"shuffle": False}, "sampler was 'RandomSampler' and is 'SequentialSampler'"),
    "drop_last": ({"drop_last": True}, "drop_last was False and is True"),
    "persistent workers": ({"persistent_workers": True}, "persistent_workers was False and is True"),
    "prefetching": ({"prefetch_factor": 3}, "prefetch_factor was 2 and is 3"),
}


@pytest.mark.parametrize("which", DIFFERENT)
def test_another_loader(root: Path, which: str) -> None:
    dataset = ImageFolder(str(root), cases.TRAIN)
    options = {"num_workers": 2, "multiprocessing_context": "fork"}
    different, match = DIFFERENT[which]
    refused(made(dataset, **options | different), saved(made(dataset, **options)), match)


def test_another_length(root: Path) -> None:
    state = saved(made(ImageFolder(str(root), cases.TRAIN)))
    less = torch.utils.data.Subset(ImageFolder(str(root), cases.TRAIN), range(20))
    refused(made(less), state, "samples was 26 and is 20")


def test_another_version(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = made(ImageFolder(str(root), cases.TRAIN))
    state = saved(loader)
    version = torchvision.__version__
    monkeypatch.setattr("torchvision.__version__", "0.99")
    refused(loader, state, f"torchvision was {version!r} and is '0.99'")


def test_another_epoch_of_a_distributed_sampler(root: Path) -> None:
    """It is set after loading, so it is compared at ``iter()``."""
    dataset = ImageFolder(str(root), cases.TRAIN)

    def loader(epoch: int) -> Any:
        sampler = DistributedSampler(dataset, 2, 0)
        sampler.set_epoch(epoch)
        return made(dataset, shuffle=None, sampler=sampler)

    refused(loader(2), saved(loader(1)), "sampler.epoch was 1 and is 2")


def test_a_sampler_that_others_disturb(root: Path) -> None:
    """One that draws from Python's generator for each batch, from which training draws, too."""

    class Disturbed(torch.utils.data.Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            for _ in range(24):
                yield random.randrange(26)

        def __len__(self) -> int:
            return 24

    for workers in (0, 2):
        loader = made(ImageFolder(str(root), cases.TRAIN), shuffle=None, sampler=Disturbed(), num_workers=workers)
        batches = iter(loader)
        for _ in range(3):
            next(batches), random.random()
        state = loader.state_dict()
        del batches
        refused(loader, state, "the sampler does not give the indices that it gave")


@pytest.mark.parametrize("workers", [0, 2])
def test_other_transforms(root: Path, workers: int) -> None:
    """Replaying does not help here."""
    state = saved(made(ImageFolder(str(root), cases.TRAIN), num_workers=workers))
    other = T.Compose([T.RandomResizedCrop(24, scale=(0.1, 1.0)), T.RandomHorizontalFlip(), T.ToTensor()])
    refused(made(ImageFolder(str(root), other), num_workers=workers), state, "is not recorded as it was")


@pytest.mark.parametrize("workers", [0, 2])
def test_other_files(root: Path, tmp_path: Path, workers: int) -> None:
    """Files of other sizes are seen; of the same size, they are not (docs/resume.md)."""
    for number, path in enumerate(sorted(root.rglob("*.jpg"))):
        other = tmp_path / path.relative_to(root)
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(helpers.jpeg(61 + number, 50, seed=number))
    state = saved(made(ImageFolder(str(root), cases.TRAIN), num_workers=workers))
    refused(made(ImageFolder(str(tmp_path), cases.TRAIN), num_workers=workers), state, "is not recorded as it was")


class Hidden(torch.utils.data.Dataset[Any]):
    """A dataset with a counter that no search finds."""

    def __init__(self, root: Path) -> None:
        self.files = sorted(map(str, root.rglob("*.jpg")))
        self.count = [0] * 2000

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Any:
        self.count[1999] += 1
        return cases.TRAIN(default_loader(self.files[number])), self.count[1999]


def test_what_is_hidden_is_replayed_by_workers(root: Path) -> None:
    """They begin with the dataset as it is in the main process."""
    torch.manual_seed(0)
    loader = made(Hidden(root), num_workers=2)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    expected = [(images.clone(), numbers) for images, numbers in batches]
    other = made(Hidden(root), num_workers=2)
    other.load_state_dict(state)
    helpers.assert_same([(images.clone(), numbers) for images, numbers in other], expected)


def test_what_is_hidden_in_this_process_is_seen(root: Path) -> None:
    refused(made(Hidden(root)), saved(made(Hidden(root))), "is not recorded as it was")


class Rarely(Hidden):
    """Its counter is seen in one sample."""

    def __getitem__(self, number: int) -> Any:
        image, count = super().__getitem__(number)
        return image, count if number == 17 else 0


@pytest.mark.parametrize("workers", [0, 2])
def test_more_batches_are_checked(root: Path, workers: int) -> None:
    """What is hidden is seen by the batches behind the resume that are checked, and by no others."""
    options = {"shuffle": False, "num_workers": workers}
    state = saved(made(Rarely(root), **options), 2)
    for verify in (2, 3):
        batches = made(Rarely(root), **options)
        batches.load_state_dict(state, verify=verify)
        if verify == 2:
            assert len(list(batches)) == 5
            continue
        batches = iter(batches)
        next(batches), next(batches)
        with pytest.raises(accel.ResumeError, match="is not recorded as it was"):
            next(batches)


def test_more_batches_of_an_iterable_dataset(root: Path) -> None:
    case = Case(dataset="iterable", sampler="sequential")
    with pytest.raises(accel.ResumeError, match="cannot be made twice"):
        cases.loader(case, root).load_state_dict(saved(cases.loader(case, root)), verify=1)  # type: ignore[attr-defined]


class Counting(torch.utils.data.Dataset[Any]):
    """A dataset that counts its samples."""

    def __init__(self, root: Path, restores: tuple[str, ...]) -> None:
        self.files = sorted(map(str, root.rglob("*.jpg")))
        self.accel_restores = restores
        self.calls, self.numbers, self.steps, self.secure = 0, itertools.count(), itertools.count(3, 2), Secure()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Any:
        self.calls += 1
        return cases.TRAIN(default_loader(self.files[number])), (self.calls, next(self.numbers), next(self.steps))


class Secure(random.SystemRandom):
    """One that is there and not used."""


@pytest.mark.parametrize("workers", [0, 2])
def test_what_counts_is_named(root: Path, workers: int, caplog: pytest.LogCaptureFixture) -> None:
    """And not restored."""
    state = saved(made(Counting(root, ()), num_workers=workers))
    for name in ("calls (int)", "numbers (count)", "steps (count)", "secure (Secure)"):
        assert f"dataset.{name}" in caplog.text
    if not workers:
        refused(made(Counting(root, ())), state, "is not recorded as it was")


def test_nothing_is_named_where_nothing_counts(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    for workers in (0, 2):
        saved(made(ImageFolder(str(root), cases.TRAIN), num_workers=workers))
    assert "which draw or count" not in caplog.text


@pytest.mark.parametrize("workers", [0, 2])
def test_what_counts_and_is_listed_is_restored(root: Path, workers: int, caplog: pytest.LogCaptureFixture) -> None:
    def loader() -> Any:
        torch.manual_seed(workers)
        return made(Counting(root, ("calls", "numbers", "steps")), num_workers=workers)

    batches = iter(begun := loader())
    for _ in range(3):
        next(batches)
    state, expected = begun.state_dict(), [[images.clone(), counts] for images, counts in batches]
    assert "dataset.secure" in caplog.text
    assert "dataset.calls" not in caplog.text
    assert "dataset.numbers" not in caplog.text
    resumed = loader()
    resumed.load_state_dict(state, verify=2)
    helpers.assert_same(list(resumed), expected)


def test_what_is_listed_and_cannot_be_restored(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved(made(Counting(root, ("files", "absent", "calls", "numbers", "steps"))))
    for name in ("files", "absent"):
        assert f"dataset.{name} (Listed)" in caplog.text


def test_a_generator_that_is_gone(root: Path) -> None:
    state = saved(cases.loader(Case(dataset="own", planted="numpy"), root))
    refused(cases.loader(Case(dataset="own", planted="numpy", sampler="sequential"), root), state, "sampler was")
    without = cases.loader(Case(dataset="own", planted="numpy"), root)
    without.dataset.generator = None  # type: ignore[attr-defined]
    refused(without, state, "generators of yours are not where they were: dataset.generator")


def test_damaged_states(root: Path) -> None:
    loader = made(ImageFolder(str(root), cases.TRAIN), num_workers=2)
    state = saved(loader)
    for key in state:
        damaged = {each: value for each, value in state.items() if each != key}
        refused(loader, damaged, "no state" if key == "accel_resume" else "it lacks" if key in state else "")
    for key, value in {"handed": 4, "base_seed": 1, "running": False}.items():
        refused(loader, state | {key: value}, "its checksum differs")
    changed = {**state["main"], "torch": state["main"]["torch"].clone().index_fill_(0, torch.tensor([9]), 77)}
    refused(loader, state | {"main": changed}, "its checksum differs")
    refused(loader, state | {"accel_resume": 2}, "format 2")
    for other in ({}, None, [1], {"epoch": 3}):
        refused(loader, other, "no state")


def test_in_any_order(root: Path) -> None:
    loader = made(ImageFolder(str(root), cases.TRAIN), num_workers=2, in_order=False)
    refused(loader, saved(loader), "in_order=False")


def test_a_batch_that_raised(root: Path) -> None:
    class Broken(Hidden):
        def __getitem__(self, number: int) -> Any:
            if number == 9:
                raise KeyError("nine")
            return super().__getitem__(number)

    loader = made(Broken(root), shuffle=False, num_workers=1)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(KeyError):
        next(batches)
    refused(made(Broken(root), shuffle=False, num_workers=1), loader.state_dict(), "raised an error")
    next(batches)
    assert not loader.state_dict()["refused"]


class Executed:
    """What must not be unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("the state was unpickled",)


def test_nothing_of_a_state_is_unpickled(root: Path) -> None:
    """Not even of one whose checksum is right."""
    for workers in (0, 2):
        loader = made(ImageFolder(str(root), cases.TRAIN), num_workers=workers)
        saved_state = saved(loader)
        for note in saved_state["workers"]:
            note["record"] = torch.frombuffer(bytearray(pickle.dumps(Executed())), dtype=torch.uint8)
        refused(loader, state.sealed(saved_state), "is not recorded as it was")


def test_batches_made_without_the_switch(root: Path) -> None:
    loader = made(ImageFolder(str(root), cases.TRAIN))
    batches = iter(loader)
    next(batches)
    with accel.image_backend("torchvision"):
        next(batches)
    assert not loader.state_dict()["refused"], "the hooks were there"


def test_batches_made_without_hooks(root: Path) -> None:
    loader = made(ImageFolder(str(root), cases.TRAIN))
    batches = iter(loader)
    next(batches)
    hooks.uninstall()
    try:
        next(batches)
    finally:
        hooks.install()
    refused(made(ImageFolder(str(root), cases.TRAIN)), loader.state_dict(), "while no backend was in force")


@pytest.mark.parametrize("workers", [0, 2])
def test_persistent_workers_behind_an_epoch_that_was_left(root: Path, workers: int) -> None:
    """They were ahead of it: it is not known where they are until each has handed out a batch of the next one."""

    def loader() -> Any:
        dataset = ImageFolder(str(root), cases.TRAIN)
        return made(dataset, num_workers=workers, persistent_workers=workers > 0)

    cases.seeded(1)
    begun = loader()
    for number, _ in enumerate(begun):
        if number == 2:
            break
    if workers:
        refused(loader(), begun.state_dict(), "an epoch was left early, and its persistent workers live on")
    batches = iter(begun)
    next(batches)
    if workers:
        refused(loader(), begun.state_dict(), "the last batch of worker 1 raised an error, or was made without accel")
        next(batches)
    state = begun.state_dict()
    expected = [(images.clone(), labels) for epoch in (batches, begun) for images, labels in epoch]
    resumed = loader()
    resumed.load_state_dict(state)
    found = [(images.clone(), labels) for epoch in (resumed, resumed) for images, labels in epoch]
    helpers.assert_same(found, expected)


def test_odd_batches_break_nothing(root: Path) -> None:
    """What cannot be noted is left out."""

    class Odd:
        def __init__(self, images: Any) -> None:
            self.images, self.nested = images, torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
            self.sparse, self.text, self.many = torch.eye(3).to_sparse(), "x" * 100_000, list(range(100_000))

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    def collate(samples: Any) -> Any:
        return Odd(torch.utils.data.default_collate(samples)[0])

    loader = made(ImageFolder(str(root), cases.TRAIN), collate_fn=collate)
    assert not saved(loader)["refused"]
