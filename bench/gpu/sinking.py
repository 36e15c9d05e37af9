"""Measuring a training by the plain loop, with ``accel.device_queue``, and by ``accel.sink``: images per second, and
the share of time in which the device stands still."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

import accel
from accel.cli.data import open_folder
from accel.cli.pipelines import PIPELINES
from accel.system.cores import cores
from bench.gpu.setting import Setting, Step, standing_still, wait
from bench.train import WAYS, Training, fed_by

MODELS = {"shufflenet": (128, 100), "mobilenet": (128, 100), "resnet50": (256, 30)}
"""Batch size and steps of a group, by model."""
EQUAL = 12  # steps whose losses are compared
TRACED = 10  # steps of a group in a trace


def measure(setting: Setting) -> Iterator[Step]:
    """Every model in every way."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic algorithms need
    for model in MODELS:
        yield model, partial(_model, setting, model)


def _model(setting: Setting, model: str) -> dict[str, Any]:
    """Compare the losses of all ways; then measure each: of three groups the first does not count.

    Raises:
        AssertionError: with deterministic algorithms, losses differ.
    """
    device, (batch, steps) = setting.device, MODELS[model]
    if device.type == "cpu":
        batch, steps = min(batch, len(setting.photos)), setting.steps
    found: dict[str, Any] = {"batch": batch, "steps of a group": steps, "steps compared": EQUAL}
    with accel.image_backend("cuda", device=str(device)):
        with _deterministic():
            losses = []
            for way in WAYS:
                training = Training(model, 1000, device, scaled=False)
                fed_by(way, training, _loader(setting, batch, EQUAL, 2), device, EQUAL // 2)
                losses.append(training.losses)
        if any(each != losses[0] for each in losses):
            raise AssertionError(f"losses differ from the plain loop's: {dict(zip(WAYS, losses, strict=True))}")
        for way in WAYS:
            training = Training(model, 1000, device, scaled=False)
            rate = fed_by(way, training, _loader(setting, batch, 3 * steps), device, steps).rate
            found[f"{way}, images/s"] = rate
            found[f"{way}, times the plain loop"] = rate / found[f"{WAYS[0]}, images/s"]
            if device.type == "cuda":
                found[f"{way}, share of time the device stands still"] = _still(setting, way, model, batch)
    return {**found, "steps replayed": training.sink.replayed, "reason": training.sink.reason}


def _still(setting: Setting, way: str, model: str, batch: int) -> float:
    """The share of time in which no kernel and no copy runs, over two groups behind two others."""
    training = Training(model, 1000, setting.device, scaled=False)
    groups = _groups(way, training, _loader(setting, batch, 5 * TRACED), setting.device)
    for _ in islice(groups, 2):
        pass
    wait(setting.device)
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in islice(groups, 2):
            pass
        wait(setting.device)
    events = [each for each in recorded.events() or () if each.device_type != DeviceType.CPU]
    return standing_still([(each.time_range.start, each.time_range.end) for each in events])


def _groups(way: str, training: Training, batches: DataLoader[Any], device: torch.device) -> Iterator[Any]:
    """Train, and yield after every ``TRACED`` steps."""
    if way == "accel.sink":
        yield from accel.sink(training.step, TRACED)(batches)
        return
    iterator = iter(accel.device_queue(batches, device) if way == "accel.device_queue" else batches)
    while some := list(islice(map(partial(_step, training, device), iterator), TRACED)):
        yield some


def _step(training: Training, device: torch.device, batch: Any) -> torch.Tensor:
    return training.step(*(tensor.to(device, non_blocking=True) for tensor in batch))


def _loader(setting: Setting, batch: int, steps: int, workers: int | None = None) -> DataLoader[Any]:
    """A loader of the folder's photos, repeated for so many steps."""
    torch.manual_seed(0)
    data = open_folder(setting.folder, PIPELINES["train"]())
    order, pins = list(islice(cycle(data.order), batch * steps)), setting.device.type == "cuda"
    return DataLoader(data.dataset, batch, sampler=order, num_workers=workers or cores(), pin_memory=pins)


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
