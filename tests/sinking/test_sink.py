"""``accel.sink`` on a stand-in device: groups, results and errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import accel
from accel.runtime import streams
from rig.tape import TapeDevice
from tests.support import inside
from tests.support.sinking import Training, plain, same


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("steps", [1, 3, 100, -1])
def test_as_the_plain_loop(device: TapeDevice, steps: int, optimizer: str) -> None:
    """Losses, and after each group all values; two epochs, each with a partial batch."""
    training = Training(device, optimizer)
    step = training.step()
    expected = [plain(step, training.loader, training) for _ in range(2)]
    training = Training(device, optimizer)
    sunk = accel.sink(training.step(), steps)
    for epoch in expected:
        done = 0
        for group in sunk(training.loader):
            done += len(group)
            assert same(training.values(), epoch[done - 1][1])
            assert same([*group], [loss for loss, _ in epoch[done - len(group) : done]])
        assert done == len(epoch)
    if steps == 1:
        assert "groups are of one step" in sunk.reason
        return
    assert sunk.reason is None, sunk
    eager = {3: 8 + 6, 100: 3 + 1 + 1 + 1, -1: 3 + 1 + 1 + 1}[steps]
    assert (sunk.replayed, sunk.eager) == (28 - eager, eager)
    assert device.replays == sunk.replayed
    assert f"captured; {28 - eager} steps replayed, {eager} run as they are" in accel.explain(sunk)


def test_on_the_host_it_is_the_plain_loop() -> None:
    data = TensorDataset(torch.arange(20.0))
    seen: list[float] = []

    def step(values: torch.Tensor) -> torch.Tensor:
        seen.append(values.sum().item())
        return values.sum()

    sunk = accel.sink(step, 2, device="cpu")
    groups = list(sunk(DataLoader(data, 4)))
    assert [each.tolist() for each in groups] == [[6.0, 22.0], [38.0, 54.0], [70.0]]
    assert seen == [6.0, 22.0, 38.0, 54.0, 70.0]
    assert sunk.reason == "the step runs on the host"


def test_results_of_several_tensors(device: TapeDevice) -> None:
    training = Training(device)
    step = training.step()

    def both(images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": step(images, labels), "right": (labels == 1).sum()}

    sunk = accel.sink(both, 5)
    groups = list(sunk(training.loader))
    assert [len(each["right"]) for each in groups] == [5, 5, 4]
    assert sunk.replayed == 2 + 4 + 2
    assert sum(int(each["right"].sum()) for each in groups) == sum(int((y == 1).sum()) for _, y in training.loader)


def test_results_that_differ_in_shape_are_a_list(device: TapeDevice) -> None:
    training = Training(device)
    step = training.step()

    def each(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return step(images, labels) + images.sum(1)

    (losses,) = accel.sink(each, -1)(training.loader)
    assert [len(loss) for loss in losses] == [4] * 13 + [2]


def test_a_step_that_stops(device: TapeDevice) -> None:
    training = Training(device)
    step, left = training.step(), iter(range(2))
    groups = accel.sink(lambda *batch: step(*batch) + 0 * next(left), -1)(training.loader)
    assert len(next(groups)) == 2
    with pytest.raises(RuntimeError, match=r"a step raised StopIteration"):
        next(groups)


@pytest.mark.parametrize("result", [1.5, None, [torch.zeros(())], (torch.zeros(()), 2)])
def test_a_result_that_is_no_tensor(device: TapeDevice, result: Any) -> None:
    with pytest.raises(TypeError, match=r"a step must return a tensor, or a tuple or dict of tensors"):
        next(accel.sink(lambda *batch: result, 1)(Training(device).loader))


@pytest.mark.parametrize("steps", [0, -2, 1.5, True])
def test_a_wrong_number_of_steps(steps: Any) -> None:
    with pytest.raises(ValueError, match=r"steps must be a positive int or -1"):
        accel.sink(lambda batch: batch, steps)


def failing(loader: Any, after: int) -> Iterator[Any]:
    for number, batch in enumerate(loader):
        if number == after:
            raise OSError("the disk is gone")
        yield batch


@pytest.mark.parametrize("after", [2, 6, 7, 8])
def test_an_error_of_the_loader(device: TapeDevice, after: int) -> None:
    """The results before it are yielded first; the weights are those after these."""
    training = Training(device)
    step = training.step()
    expected = plain(step, itertools.islice(training.loader, after), training)
    training = Training(device)
    groups, found = accel.sink(training.step(), 3)(failing(training.loader, after)), []
    with pytest.raises(OSError, match=r"the disk is gone"):
        found.extend(each for group in groups for each in group)
    assert same(found, [loss for loss, _ in expected])
    assert same(training.values()[:-3], expected[-1][1][:-3])


def test_an_error_of_the_step(device: TapeDevice) -> None:
    training = Training(device)
    step = training.step()

    def wrong(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if len(images) == 2:
            raise ArithmeticError("a batch of two")
        return step(images, labels)

    groups = accel.sink(wrong, 10)(training.loader)
    assert [len(next(groups)) for _ in range(2)] == [10, 3]
    with pytest.raises(ArithmeticError, match=r"a batch of two"):
        next(groups)
    with pytest.raises(StopIteration):
        next(groups)


def test_a_batch_that_is_read_too_early(device: TapeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in would show it: without waiting for a batch, a replay reads what lay there before."""
    monkeypatch.setattr(streams, "arrive", lambda result, event: result)
    weight = nn.Linear(1, 1)
    loader = [torch.full((2,), float(number)) for number in range(8)]
    sunk = accel.sink(lambda batch: batch.sum() + 0 * weight.bias.sum(), -1)
    assert next(sunk(loader)).tolist() != [2.0 * number for number in range(8)]


def test_nothing_waits_inside_a_group(device: TapeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays, their batches and their results are queued; nothing asks for a value before the group is there."""
    training = Training(device, examples=160)
    sunk = accel.sink(training.step(), 10)
    groups = sunk(list(training.loader))  # whose collating would be taken for work of the device
    next(groups)
    waits = inside.spy(monkeypatch, type(device), "finish", lambda *_: sunk.replayed)
    before = sunk.replayed
    next(groups)
    assert sunk.replayed == before + 9
    assert not [each for each in waits if before < each < sunk.replayed]
