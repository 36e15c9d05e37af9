"""A small training for the tests of ``accel.sink``, with the plain loop beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import accel
from rig.tape import TapeDevice

Values = list[torch.Tensor]


class Hidden:
    """Refers to something that is not found among a step's variables."""

    __slots__ = ()
    _values: ClassVar[dict[int, Any]] = {}

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def value(self) -> Any:
        return Hidden._values[id(self)]

    @value.setter
    def value(self, value: Any) -> None:
        Hidden._values[id(self)] = value


class Training:
    """A small training with all that draws or remembers: dropout, batch norm, momentum."""

    def __init__(self, device: TapeDevice, optimizer: str = "sgd", examples: int = 54) -> None:
        torch.manual_seed(0)
        device.random.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
        parameters = self.model.parameters()
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
            if optimizer == "sgd"
            else torch.optim.AdamW(parameters, lr=torch.tensor(0.01), fused=True)
        )
        self.device = device
        data = TensorDataset(torch.randn(examples, 6), torch.randint(3, (examples,)))
        self.loader = DataLoader(data, 4, shuffle=True)

    def step(self) -> Callable[..., Any]:
        model, optimizer, device = self.model, self.optimizer, Hidden(self.device)

        def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            with device.value.drawing():
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
            return loss

        return step

    def values(self) -> Values:
        """Weights, optimizer and random states."""
        kept = [*self.model.state_dict().values(), self.device.random.get_state(), torch.get_rng_state()]
        for own in self.optimizer.state.values():
            kept += [each for each in own.values() if isinstance(each, torch.Tensor)]
        return [each.clone() for each in kept]


def same(one: Values, two: Values) -> bool:
    return len(one) == len(two) and all(map(torch.equal, one, two))


def plain(step: Callable[..., Any], loader: Any, training: Training) -> list[tuple[torch.Tensor, Values]]:
    """The losses of an epoch of the plain loop, each with the values after it."""
    found = []
    for batch in loader:
        loss = step(*batch).detach()
        found.append((loss, training.values()))
    return found


def compared(
    device: TapeDevice,
    make: Callable[[Training], Callable[..., Any]],
    between: Callable[[Training, int], None] = lambda training, group: None,
    steps: int = 2,
) -> Any:
    """The sink that ran two epochs, with something done after each group: as the plain loop, in every bit."""
    training = Training(device)
    step, losses, number = make(training), [], itertools.count()
    for _ in range(2):
        for group in grouped(training.loader, steps):
            losses += [step(*batch).detach() for batch in group]
            between(training, next(number))
    after = training.values()
    training, number = Training(device), itertools.count()
    sunk = accel.sink(make(training), steps)
    found: Values = []
    for _ in range(2):
        for results in sunk(training.loader):
            found += [*results]
            between(training, next(number))
    assert same(found, losses)
    assert same(training.values(), after)
    return sunk


def grouped(loader: Any, count: int) -> Iterator[list[Any]]:
    batches = iter(loader)
    while group := list(itertools.islice(batches, count)):
        yield group
