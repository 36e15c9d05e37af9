"""``accel.sink`` on a stand-in device: what is captured, anew after changes, and what never is."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import accel
from rig.tape import TapeDevice
from tests.support.sinking import Hidden, Training, Values, compared, grouped, same

# -- changed between groups ---------------------------------------------------------------------------------


def load_momentum(training: Training, group: int) -> None:
    if group == 4:
        training.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))


def lower_rate(training: Training, group: int) -> None:
    if group == 4:
        training.optimizer.param_groups[0]["lr"] /= 2


def freeze(training: Training, group: int) -> None:
    if group == 4:
        training.model[1].eval()


def less_dropout(training: Training, group: int) -> None:
    if group == 4:
        training.model[3].p = 0.1


def no_gradient(training: Training, group: int) -> None:
    if group == 4:
        training.model[0].weight.requires_grad_(False)
        training.model[0].weight.grad = None


def hook(training: Training, group: int) -> None:
    if group == 4:
        training.model[0].register_forward_hook(lambda module, given, made: made * 2)


def other_forward(training: Training, group: int) -> None:
    if group == 4:
        training.model[2].forward = lambda values: values.clamp(-0.5, 0.5)


def replace_parameter(training: Training, group: int) -> None:
    if group == 4:
        with torch.no_grad():
            training.model[4].bias = nn.Parameter(training.model[4].bias + 1)


@pytest.mark.parametrize(
    "change",
    [load_momentum, lower_rate, freeze, less_dropout, no_gradient, hook, other_forward, replace_parameter],
)
def test_what_is_changed_between_groups_counts(device: TapeDevice, change: Any) -> None:
    sunk = compared(device, Training.step, change)
    assert sunk.reason is None
    assert sunk.replayed > 4


class Settings:
    share = 1.0


class Slots:
    __slots__ = ("share",)

    def __init__(self) -> None:
        self.share = 1.0


SHARE = [1.0]


PADDED = nn.Conv1d(1, 1, 3, padding=1)


def weight() -> float:
    return SHARE[0]


def scaled(by: Callable[[], Any]) -> Callable[[Training], Callable[..., Any]]:
    def make(training: Training) -> Callable[..., Any]:
        step = training.step()
        return lambda images, labels: step(images * by(), labels)

    return make


slots, shares, table = Slots(), np.ones(3), {"deep": [{"share": 1.0}]}


def rebind(share: float) -> None:
    Settings.share = slots.share = SHARE[0] = shares[1] = table["deep"][0]["share"] = share  # type: ignore[index]
    PADDED.padding = (1 if share == 1 else 0,)


@pytest.mark.parametrize(
    "by",
    [
        lambda: Settings.share,
        lambda: slots.share,
        lambda: weight(),
        lambda: float(shares[1]),
        lambda: table["deep"][0]["share"],  # type: ignore[index]
        lambda: PADDED(torch.ones(1, 1, 9)).detach().sum(),
        functools.partial(lambda share: share.share, slots),
    ],
)
def test_what_a_step_reads_elsewhere(device: TapeDevice, by: Any) -> None:
    """Attributes of classes and slots, globals of functions that it calls, arrays, items, a module's settings."""

    def change(training: Training, group: int) -> None:
        if group % 7 == 4:
            rebind(0.5)

    def make(training: Training) -> Callable[..., Any]:
        rebind(1.0)
        return scaled(by)(training)

    sunk = compared(device, make, change)
    assert sunk.reason is None
    assert sunk.replayed > 4


def test_names_that_are_bound_anew(device: TapeDevice) -> None:
    """The step's optimizer is another one from the third group on."""

    def run(around: Callable[[Callable[..., Any], Any], Iterator[Any]]) -> Values:
        training = Training(device)
        optimizer = training.optimizer

        def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(training.model(images), labels)
            loss.backward()
            optimizer.step()
            return loss

        training.model[3].p = 0.0
        losses: Values = []
        for number, group in enumerate(around(step, training.loader)):
            losses += [*group]
            if number == 2:
                optimizer = torch.optim.SGD(training.model.parameters(), lr=0.0)
        return losses

    def plainly(step: Callable[..., Any], loader: Any) -> Iterator[Any]:
        for group in grouped(loader, 2):
            yield [step(*batch).detach() for batch in group]

    assert same(run(lambda step, loader: accel.sink(step, 2)(loader)), run(plainly))


def test_a_list_of_many_tensors(device: TapeDevice) -> None:
    def make(training: Training) -> Callable[..., Any]:
        step, averages = training.step(), [torch.zeros(2) for _ in range(150)]

        def averaged(*batch: torch.Tensor) -> torch.Tensor:
            torch._foreach_add_(averages, 1.0)
            return step(*batch) + averages[149].sum()

        return averaged

    assert compared(device, make).replayed == 11


def test_a_scaler_that_asks_nobody(device: TapeDevice) -> None:
    def make(training: Training) -> Callable[..., Any]:
        optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1, fused=True)
        model, scaler = training.model, torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
        model[3].p = 0.0

        def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss * scaler._scale  # type: ignore[operator]

        return step

    assert compared(device, make).reason is None


def test_gradients_that_were_taken_away_between_groups(device: TapeDevice) -> None:
    def take(training: Training, group: int) -> None:
        training.optimizer.zero_grad()

    sunk = compared(device, Training.step, take)
    assert sunk.replayed == 11


def test_what_changes_all_the_time_is_not_captured(device: TapeDevice) -> None:
    def schedule(training: Training, group: int) -> None:
        training.optimizer.param_groups[0]["lr"] *= 0.9

    sunk = compared(device, Training.step, schedule)
    assert "it does something else from time to time: aten::" in sunk.reason
    assert sunk.replayed < 5


def test_a_rate_in_a_tensor_may_change(device: TapeDevice) -> None:
    def schedule(training: Training, group: int) -> None:
        training.optimizer.param_groups[0]["lr"].mul_(0.9)

    def make(training: Training) -> Callable[..., Any]:
        training.optimizer = torch.optim.AdamW(training.model.parameters(), lr=torch.tensor(0.01), fused=True)
        return training.step()

    assert compared(device, make, schedule).replayed == 11


# -- what is not captured -----------------------------------------------------------------------------------


def asking(training: Training) -> Callable[..., Any]:
    step = training.step()
    return lambda *batch: step(*batch) * (1 if step.__closure__ and batch[0].sum().item() > 0 else 2)


def scheduling(training: Training) -> Callable[..., Any]:
    step, schedule = training.step(), torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.9)

    def scheduled(*batch: torch.Tensor) -> torch.Tensor:
        loss = step(*batch)
        schedule.step()
        return loss

    return scheduled


def mixing(training: Training) -> Callable[..., Any]:
    step = training.step()
    return lambda images, labels: step(images * torch.rand(()), labels)


def masking(training: Training) -> Callable[..., Any]:
    step = training.step()
    return lambda images, labels: step(images, labels) + images[images > 0].sum()


def counting(training: Training) -> Callable[..., Any]:
    step, seen = training.step(), [0]

    def counted(*batch: torch.Tensor) -> torch.Tensor:
        seen[0] += 1
        return step(*batch) + seen[0]

    return counted


def hiding(training: Training) -> Callable[..., Any]:
    step, seen = training.step(), Hidden(0)

    def counted(*batch: torch.Tensor) -> torch.Tensor:
        seen.value += 1
        return step(*batch) + seen.value

    return counted


def collecting(training: Training) -> Callable[..., Any]:
    step, seen = training.step(), [torch.zeros(())]

    def collected(*batch: torch.Tensor) -> torch.Tensor:
        seen.append(step(*batch).detach())
        return seen[-1] + seen[-2]

    return collected


def drawing(training: Training) -> Callable[..., Any]:
    step, random = training.step(), np.random.default_rng(3)
    return lambda *batch: step(*batch) * (2 if random.random() < 0.1 else 1)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (asking, "asks the device for a tensor's number"),
        (scheduling, "it changes step.schedule.last_epoch (int) on the host"),
        (mixing, "draws random numbers on the host"),
        (masking, "operation not permitted when stream is capturing"),
        (counting, "it changes step.seen[0] (int) on the host"),
        (collecting, "it does something else from time to time"),
        (hiding, "it does something else from time to time"),
        (drawing, "draws random numbers on the host"),
    ],
)
def test_what_is_not_captured_runs_as_it_is(
    device: TapeDevice, make: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    sunk = compared(device, make)
    assert reason in sunk.reason
    assert sunk.replayed == 0
    assert any(reason in each for each in accel.stats()["fallbacks"])


def test_inside_an_autocast_with_a_cache(device: TapeDevice) -> None:
    training = Training(device)
    sunk = accel.sink(training.step(), 3)
    with torch.autocast("cpu"):
        list(sunk(training.loader))
    assert "autocast" in sunk.reason


def test_gradients_without_memory_of_their_own(device: TapeDevice) -> None:
    torch.manual_seed(0)
    words = nn.Embedding(9, 3, sparse=True)
    optimizer = torch.optim.SGD(words.parameters(), lr=0.1)

    def step(numbers: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = words(numbers).sum()
        loss.backward()
        optimizer.step()
        return loss

    loader = [torch.tensor([number % 9, 3]) for number in range(8)]
    sunk = accel.sink(step, -1)
    results = next(sunk(loader))
    torch.manual_seed(0)
    words = nn.Embedding(9, 3, sparse=True)
    optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
    assert same([*results], [step(batch).detach() for batch in loader])
    assert "cannot be watched" in sunk.reason


def test_a_compiled_model(device: TapeDevice) -> None:
    def make(training: Training) -> Callable[..., Any]:
        model = torch.compile(training.model[0], backend="eager")
        return lambda images, labels: model(images).sum()

    assert "it is compiled" in compared(device, make).reason


COUNT, KEPT = {"n": 0}, [np.random.default_rng(3)]


def rarely() -> bool:
    COUNT["n"] += 1
    return COUNT["n"] % 20 == 0


def counting_elsewhere(training: Training) -> Callable[..., Any]:
    step = training.step()
    COUNT["n"] = 0
    return lambda *batch: step(*batch) * (2.0 if rarely() else 1.0)


def drawing_elsewhere(training: Training) -> Callable[..., Any]:
    step = training.step()
    KEPT[0] = np.random.default_rng(3)
    return lambda *batch: step(*batch) * (2.0 if KEPT[0].random() < 0.05 else 1.0)


@pytest.mark.parametrize("make", [counting_elsewhere, drawing_elsewhere])
def test_what_a_function_of_the_module_keeps(device: TapeDevice, make: Any) -> None:
    assert compared(device, make, steps=4).replayed == 0


def test_gradients_kept_over_a_batch_of_another_form(device: TapeDevice) -> None:
    """They are those that the last step left, whichever way it ran."""

    def run(around: Callable[[Callable[..., Any], Any], Iterator[Any]]) -> Values:
        training = Training(device)
        model, optimizer = training.model, training.optimizer
        model[3].p = 0.0

        def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            if len(images) == 2:
                optimizer.step()
                optimizer.zero_grad()
            return loss

        sizes = ([4] * 6 + [2, 4]) * 4
        loader = [(torch.randn(size, 6), torch.randint(3, (size,))) for size in sizes]
        return [each for group in around(step, loader) for each in group]

    def plainly(step: Callable[..., Any], loader: Any) -> Iterator[Any]:
        yield [step(*batch).detach() for batch in loader]

    assert same(run(lambda step, loader: accel.sink(step, 8)(loader)), run(plainly))


def test_settings_of_torch_count(device: TapeDevice) -> None:
    def change(training: Training, group: int) -> None:
        if group == 4:
            torch.set_float32_matmul_precision("medium")

    def make(training: Training) -> Callable[..., Any]:
        torch.set_float32_matmul_precision("highest")
        return training.step()

    try:
        sunk = compared(device, make, change)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert sunk.reason is None
    assert sunk.replayed < 11


def test_operators_of_higher_order(device: TapeDevice) -> None:
    def make(training: Training) -> Callable[..., Any]:
        step = training.step()

        def branching(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            extra = torch.cond(images.sum() > 0, lambda each: each.sum(), lambda each: each.sum() * 2, (images,))
            return step(images, labels) + extra

        return branching

    assert compared(device, make).reason is not None


class Table(dict[str, Any]):
    __getattr__ = dict.__getitem__


class Counter(nn.Module):
    calls = 0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return values * (2.0 if self.calls % 20 == 0 else 1.0)


TABLE, NESTED, RUNS = Table(share=1.0), nn.Sequential(nn.Identity(), Counter()), 0


def reading_a_table(training: Training) -> Callable[..., Any]:
    step = training.step()

    def with_share(*batch: torch.Tensor) -> torch.Tensor:
        return step(*batch) * TABLE.share + (unset() if TABLE.share > 1 else 0)

    def unset() -> Any:
        return later

    if TABLE.share > 1:
        later = 1
    return with_share


def test_odd_objects_and_settings_do_not_matter(device: TapeDevice) -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert compared(device, reading_a_table).reason is None
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"


def counting_in_a_model(training: Training) -> Callable[..., Any]:
    step = training.step()
    NESTED[1].calls = 0
    return lambda images, labels: step(NESTED(images), labels)


def rebinding(training: Training) -> Callable[..., Any]:
    global RUNS
    step, RUNS = training.step(), 0

    def counted(*batch: torch.Tensor) -> torch.Tensor:
        global RUNS
        RUNS += 1
        return step(*batch) * (2.0 if RUNS % 20 == 0 else 1.0)

    return functools.partial(counted)


@pytest.mark.parametrize("make", [counting_in_a_model, rebinding])
def test_what_counts_in_another_place(device: TapeDevice, make: Any) -> None:
    sunk = compared(device, make, steps=4)
    assert "on the host, which a replay does not" in sunk.reason
