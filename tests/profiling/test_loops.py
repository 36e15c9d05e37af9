"""Loops over loaders: what is measured of each, however it begins and ends."""

from __future__ import annotations

import gc
import random
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Sampler, TensorDataset, default_collate
from torchvision.datasets import ImageFolder

import accel
from accel.hooks.compiled import program
from accel.profiling import collect, loading
from accel.profiling.flow import flow
from accel.profiling.measured import Measured
from accel.runtime import streams
from accel.system.timing import measuring
from tests.profiling.measure import EACH, Numbers, Sleeping, main, measured, workers
from tests.support import helpers, inside
from tests.support.loaders import TRAIN


@pytest.mark.parametrize("count", [0, 1])
def test_samples_that_collating_drops_are_not_counted(count: int) -> None:
    given: list[int] = []

    def kept(samples: list[Any]) -> Any:
        return default_collate([each for each in samples if int(each.max()) * 7919 % 97 > 5])

    loader = DataLoader(Numbers(8000), 8, num_workers=count, collate_fn=kept)
    result = measured(loader, step=lambda batch: given.append(len(batch)))
    assert len(set(given)) > 1
    assert [each.images for each in result.batches] == given
    assert main(result).images == sum(given)


def test_nothing_changes(folder: Path) -> None:
    def epoch(profiled: bool, backend: str, count: int) -> Any:
        helpers.seed_everything(3)
        with accel.image_backend(backend):
            loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, shuffle=True, num_workers=count)
            if profiled:
                with accel.profile(show=False, trace=folder.parent / "trace.json"):
                    found = list(loader)
            else:
                found = list(loader)
            return [[images.clone(), labels] for images, labels in found], helpers.random_states()

    for backend in ("cpu", "torchvision"):
        for count in (0, 2):
            helpers.assert_same(epoch(True, backend, count), epoch(False, backend, count))


def test_one_at_a_time() -> None:
    with accel.profile(show=False) as report:
        with pytest.raises(RuntimeError, match="profiled already"), accel.profile(show=False):
            pass
        assert measuring.measuring()
    assert not measuring.measuring()
    assert report.measured.batches == []


def test_what_has_ended_ends_no_more(tmp_path: Path) -> None:
    """A second ``stop`` keeps the report, and lets another one measure on."""
    first, second = (accel.profile(show=False, json=tmp_path / f"{name}.json") for name in "ab")
    first.start()
    assert len(list(DataLoader(torch.zeros(8), 2))) == 4
    kept = first.stop().to_json()
    second.start()
    assert first.stop().to_json() == kept == (tmp_path / "a.json").read_text()
    assert measuring.measuring()
    second.stop()
    assert not measuring.measuring()


def failing(batch: Any) -> None:
    for images, *_ in batch:
        images.sum()
    raise ZeroDivisionError


def test_an_error_passes_and_is_measured(folder: Path) -> None:
    """Also what is computed in the step that it ends."""
    loader = DataLoader(ImageFolder(str(folder), TRAIN), 4)
    with accel.image_backend("cpu"), pytest.raises(ZeroDivisionError), accel.profile(show=False) as report:
        list(map(failing, ([each] for each in loader)))
    assert len(report.measured.batches) == 1
    assert not measuring.measuring()
    process = main(report.measured)
    assert process.stages["decode"].count >= 4
    assert sum(spent.ns for spent in process.stages.values()) / 1e9 <= process.seconds


@pytest.mark.parametrize("count", [0, 1])
def test_an_error_in_the_first_batch_is_reported(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(8, 3)), 4, num_workers=count, collate_fn=failing)
    with pytest.raises(ZeroDivisionError), accel.profile() as report:
        list(loader)
    assert report.measured.batches == []
    assert report.stages["wait"]["count"] == 2
    shown = capsys.readouterr().out
    assert "0 batches in" in shown
    assert "it ended with ZeroDivisionError" in shown


def test_a_loader_that_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.context.ForkProcess.start", refused)
    loader = DataLoader(TensorDataset(torch.zeros(8, 3)), 4, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(OSError, match="processes"), accel.profile() as report:
        iter(loader)
    assert report.measured.seconds >= 0
    assert "it ended with OSError" in report.verdict.why


@pytest.mark.parametrize("count", [0, 2])
def test_batches_without_rows(count: int) -> None:
    result = measured(DataLoader(range(80), 4, num_workers=count, collate_fn=no_rows))  # type: ignore[arg-type]
    its = flow(result)
    assert its is not None
    assert its.images == 4


def refused(_: Any) -> None:
    raise OSError("there are too many processes")


def no_rows(_: Any) -> Any:
    return torch.zeros(0, 3)


def test_batches_and_steps(folder: Path) -> None:
    with accel.image_backend("cpu"):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=1, persistent_workers=True)
        result = measured(loader, epochs=2, step=lambda batch: time.sleep(0.05))
        loader._iterator._shutdown_workers()  # type: ignore[union-attr]
    for each in result.batches:
        assert each.bytes == 4 * 3 * 32 * 32 * 4 + 4 * 8
        assert (each.step_ns or 0) >= 50_000_000
    taken = [each.step_cpu_ns for each in result.batches if each.step_cpu_ns is not None]  # of some batches
    assert taken
    assert all(0 < each.step_cpu_ns < each.step_ns for each in result.batches if each.step_cpu_ns and each.step_ns)
    used = [each.cpu_ns for each in result.batches if each.cpu_ns is not None]
    assert len(used) == len(taken)
    assert used == sorted(used)
    assert used[0] > 0


class Device:
    """Stands for torch.cuda: an event is complete when the device has nothing left to do."""

    def __init__(self) -> None:
        self.busy_until = 0.0
        self.uses = 0

    def event(self) -> Any:
        return self

    def query(self) -> bool:
        self.uses += 1
        return time.monotonic() >= self.busy_until


def test_whether_the_device_ran_dry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr(streams, "mark", device.event)

    def step(busy: float) -> Measured:
        def launch(batch: Any) -> None:
            device.busy_until = time.monotonic() + busy

        return measured(DataLoader(Sleeping(folder, user=0.02), 4), step=launch)

    assert [each.dry for each in step(0.0).batches] == [True] * 3
    assert [each.dry for each in step(10.0).batches][1:] == [False] * 2
    assert device.uses == 6


def test_several_loaders_an_iterable_one_and_early_breaks(folder: Path) -> None:
    paths = [str(path) for path in sorted(folder.rglob("*.jpg"))]
    stream = DataLoader(helpers.Stream(paths, TRAIN), 4, num_workers=2)
    loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=1)
    collect.start()
    try:
        with accel.image_backend("cpu"):
            for _ in zip(loader, stream, strict=False):
                pass
            for _ in loader:
                break
    finally:
        result = collect.stop()
    assert [each.num_workers for each in result.loaders] == [1, 2]
    assert {(each.loader, each.epoch) for each in result.batches} == {(0, 0), (1, 0), (0, 1)}
    assert {each.loader for each in workers(result)} == {0, 1}


class Wrapped(DataLoader[Any]):
    """As Accelerate's: it iterates by itself, one batch ahead."""

    def __iter__(self) -> Any:
        iterator = super().__iter__()
        current = next(iterator, None)
        while current is not None:
            following = next(iterator, None)
            yield current
            current = following


def test_loaders_of_others(folder: Path) -> None:
    result = measured(Wrapped(ImageFolder(str(folder), TRAIN), 4), step=lambda batch: time.sleep(0.02))
    assert len(result.batches) == 3
    assert len(result.loaders) == 1


def test_a_backend_that_changes_meanwhile(folder: Path) -> None:
    loader = DataLoader(ImageFolder(str(folder), TRAIN), 6)  # few batches: the stages of all are told apart
    with accel.image_backend("cpu"):
        next(iter(loader))[0].sum()  # what is compared at first use is decoded, too
    collect.start()
    try:
        list(loader)
        with accel.image_backend("cpu"):
            for images, _ in loader:
                images.sum()
        list(loader)
    finally:
        result = collect.stop()
    stages = main(result).stages
    assert stages["record"].count == len(loader)  # batches that are drawn in one go, and nothing that is tried
    assert stages["decode"].count == 3 * EACH


@pytest.mark.parametrize("count", [0, 1])
def test_a_pipeline_is_compiled_once(count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not anew where clocks are put around the transforms, nor where they are taken back."""
    tried = torch.zeros(1, dtype=torch.int64).share_memory_()
    inside.spy(monkeypatch, program.Program, "_try_beside", lambda *_: tried.add_(1))
    inside.forget_programs(monkeypatch)
    with accel.image_backend("cpu"):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=count, persistent_workers=count > 0)
        list(loader)
        measured(loader)
        list(loader)
        assert main(measured(loader)).images == EACH
        loader.__dict__.pop("_iterator", None)
    assert tried.item() == 1


def test_many_epochs_need_few_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.profiling.loader_records._MANY", 4)
    loader = DataLoader(Sleeping(folder, transform=lambda image: 0), 6, num_workers=2)
    epochs = 6
    collect.start()
    try:
        for _ in range(epochs):
            list(loader)
        assert len(measuring.rows_of()) < 6
    finally:
        result = collect.stop()
    assert [each.images for each in workers(result)] == [6 * epochs] * 2


def test_a_validation_is_no_waiting(slept: None) -> None:
    training, validation = DataLoader(Numbers(40), 2), DataLoader(Numbers(4), 2)
    collect.start()
    for number, _ in enumerate(training):
        if number % 2:
            for _ in validation:
                time.sleep(0.05)
    result = collect.stop()
    its = flow(result)
    assert its is not None
    assert its.shifted < 25e6  # half of a nap
    assert [batch.step_ns is None for batch in result.batches if batch.loader == 0] == [False, True] * 10


@pytest.mark.parametrize("epochs", [1, 2])
def test_what_is_tried_at_the_end_of_an_epoch_is_left_out(slept: None, epochs: int) -> None:
    loading.ends[:] = [lambda number: time.sleep(9)]
    try:
        result = measured(DataLoader(Numbers(12), 4), epochs, step=lambda batch: time.sleep(1))
    finally:
        loading.ends.clear()
    told = sum(spent.ns for spent in main(result).stages.values()) / 1e9
    assert told == pytest.approx(main(result).seconds, rel=0.01)
    assert told == pytest.approx(3 * epochs, rel=0.01)


def test_an_epoch_that_was_left() -> None:
    loader = DataLoader(Numbers(40), 2)
    with accel.profile(show=False) as report:
        for number, _ in enumerate(loader):
            if number == 9:
                break
        next(iter(loader))
    assert [batch.step_ns is None for batch in report.measured.batches][:10] == [False] * 9 + [True]


def test_a_dataset_is_not_kept() -> None:
    dataset = Numbers(8)
    alive = weakref.ref(dataset)
    with accel.profile(show=False):
        list(DataLoader(dataset, 2))
    del dataset
    gc.collect()
    assert alive() is None


class Failing(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 90:
            raise ZeroDivisionError
        return super().__getitem__(index)


@pytest.mark.parametrize("count", [0, 1])
def test_every_batch_is_noted(count: int) -> None:
    """Also where a loop is left, looked at meanwhile, or fails."""
    loader = DataLoader(Numbers(125), 2, num_workers=count, persistent_workers=count > 0)
    collect.start()
    try:
        list(loader)
        for number, _ in enumerate(loader):
            if number == 50:
                assert len(collect.so_far().batches) == 63 + 51
                break
        with pytest.raises(ZeroDivisionError):
            list(DataLoader(Failing(125), 2, num_workers=count))
    finally:
        result = collect.stop()
    numbers = [(0, 0, number) for number in range(63)] + [(0, 1, number) for number in range(51)]
    assert [(each.loader, each.epoch, each.number) for each in result.batches[: len(numbers)]] == numbers
    assert [each.number for each in result.batches if each.loader == 1] == list(range(45))
    assert [each.images for each in result.batches] == [2] * 62 + [1] + [2] * (51 + 45)
    assert main(result).images == 125 + 102 + 90
    assert main(result).stages["wait"].count == len(result.batches) + 3 + 2  # with iter(), an end and an error
    assert result.failed is not None
    if count:
        assert next(each.images or 0 for each in workers(result)) >= 125 + 102


class Lengthless(Sampler[Any]):
    def __iter__(self) -> Any:
        return iter([[0, 1], [2, 3]])

    def __len__(self) -> int:
        raise ValueError("nobody knows")


class Untouchable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise ValueError("not yet")

    def __iter__(self) -> Any:
        return iter("ab")

    def __len__(self) -> int:
        return 2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("batch_size", "options", "images"),
    [
        (1, {"batch_sampler": Lengthless()}, 4),
        (2, {"collate_fn": lambda samples: Untouchable()}, 4),
        (2, {"collate_fn": lambda samples: [pack_sequence([each.flatten() for each in samples]), 0]}, 4),
        (2, {"collate_fn": lambda samples: torch.nested.nested_tensor(samples)}, 4),
        (None, {}, 4),
    ],
)
def test_what_is_strange_is_not_asked(batch_size: int | None, options: dict[str, Any], images: int) -> None:
    with accel.profile(show=False) as report:
        for _ in DataLoader(Numbers(4), batch_size, **options):
            pass
    assert sum(batch.images for batch in report.measured.batches) == images


def test_random_states_are_left_alone() -> None:
    helpers.seed_everything(1)
    before = helpers.random_states()
    collect.start()
    collect.so_far()
    collect.stop()
    helpers.assert_same(helpers.random_states(), before)
    assert random.random() == pytest.approx(0.13436424411240122)


kept: Any = None


def test_a_loader_that_is_new_for_each_epoch() -> None:
    dataset, other = Numbers(8), Numbers(8)
    with accel.profile(show=False) as report:
        for _ in range(3):
            list(DataLoader(dataset, 2))
            iterator = iter(DataLoader(other, 2))
            list(iterator)
        for _ in zip(DataLoader(dataset, 2), DataLoader(dataset, 2), strict=True):
            pass
    found = report.measured
    assert [(each.number, each.renewed, len(each.startup_ns)) for each in found.loaders] == [
        (0, True, 4),
        (1, True, 3),
        (2, False, 1),
    ]
    assert [batch.epoch for batch in found.batches if batch.loader == 1] == [0] * 4 + [1] * 4 + [2] * 4


class Equal(DataLoader[Any]):
    """A loader that has no hash."""

    def __eq__(self, other: object) -> bool:
        return self is other


def test_a_loader_without_a_hash() -> None:
    with accel.profile(show=False) as report:
        for _ in range(2):
            list(Equal(Numbers(8), 2))
    assert len(report.measured.batches) == 8


def test_copies_where_a_default_device_is_set() -> None:
    with accel.profile(show=False) as report, torch.device("cpu"):
        for batch in DataLoader(Numbers(8), 2):
            batch.to("meta")
    assert all(batch.copy_ns for batch in report.measured.batches[:-1])
