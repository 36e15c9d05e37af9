"""``accel.sink`` on a stand-in device: groups, replays, and what is not captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import accel
from rig.tape import TapeDevice

HOST = torch.device("cpu")


class Hidden:
    """The stand-in's own counters are none of the step's."""

    __slots__ = ("device",)

    def __init__(self, device: TapeDevice) -> None:
        self.device = device


class Training:
    """A small training with all that draws or remembers: dropout, batch norm, momentum."""

    def __init__(self, device: TapeDevice, seed: int = 0, optimizer: str = "sgd", examples: int = 54) -> None:
        torch.manual_seed(seed)
        device.random.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
        parameters = self.model.parameters()
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
            if optimizer == "sgd"
            else torch.optim.AdamW(parameters, lr=torch.tensor(0.01), fused=True)
        )
        self.device = Hidden(device)
        data = TensorDataset(torch.randn(examples, 6), torch.randint(3, (examples,)))
        self.loader = DataLoader(data, 4, shuffle=True)
        self.calls = 0

    def step(self) -> Callable[..., Any]:
        model, optimizer, device = self.model, self.optimizer, self.device

        def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            with device.device.drawing():
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
            return loss

        return step

    def values(self) -> list[torch.Tensor]:
        kept = [*self.model.state_dict().values(), self.device.device.random.get_state(), torch.get_rng_state()]
        for own in self.optimizer.state.values():
            kept += [each for each in own.values() if isinstance(each, torch.Tensor)]
        return [each.clone() for each in kept]


def plain(training: Training, epochs: int = 2) -> list[torch.Tensor]:
    """The losses of the plain loop."""
    step = training.step()
    return [step(*batch).detach() for _ in range(epochs) for batch in training.loader]


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return len(one) == len(two) and all(map(torch.equal, one, two))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("steps", [1, 3, 100, -1])
def test_as_the_plain_loop(device: TapeDevice, steps: int, optimizer: str) -> None:
    expected = Training(device, optimizer=optimizer)
    losses = plain(expected)
    after = expected.values()
    training = Training(device, optimizer=optimizer)
    sunk = accel.sink(training.step(), steps)
    groups = [group for _ in range(2) for group in sunk(training.loader)]
    assert same([*torch.cat(groups)], losses)
    assert same(training.values(), after)
    assert sunk.reason is None, sunk
    assert (sunk.replayed, sunk.eager) == (28 - 3 - 2, 3 + 2)  # 3 before the capture, 2 partial batches
    assert device.replays == sunk.replayed + 2
