"""Whether batches are made beside the training step: a trace by torch.profiler of a loop that nobody changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

import accel
from accel.backends.cuda.compile import UNITS
from bench.gpu.setting import Setting, wait
from bench.gpu.training import WARM_UP, Photos, fed

MODEL = "resnet50"
OURS = frozenset(kernel for kernels in UNITS.values() for kernel in kernels)

Span = tuple[float, float]
"""From when to when, in microseconds."""


def measure(setting: Setting, batch_size: int, steps: int, trace: Path) -> dict[str, Any]:
    """Trains a few steps with ``pin_memory=True`` and two workers, and writes ``trace`` (chrome://tracing, Perfetto).

    Of accel's kernels it says how long they take a step, and which share of that time the device was training as well;
    of the loop, the share of it in which the device did neither.
    """
    device = setting.device
    torch.manual_seed(0)
    network = getattr(torchvision.models, MODEL)(weights=None).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with accel.image_backend("cuda", device=str(device)):
        loader = DataLoader(
            Photos(setting.files, batch_size * (steps + WARM_UP)),
            batch_size,
            num_workers=2,
            pin_memory=device.type == "cuda",
            drop_last=True,
        )
        batches = fed(loader, device)
        _train(network, optimizer, batches, WARM_UP, device)
        with profile(activities=activities) as recorded:
            taken = _train(network, optimizer, batches, steps, device)
    recorded.export_chrome_trace(str(trace))
    kernels = [
        (event.name, (event.time_range.start, event.time_range.end))
        for event in recorded.events() or ()
        if event.device_type != DeviceType.CPU
    ]
    return {"trace": trace.name, "model": MODEL, "batch": batch_size, "steps": taken, **summary(kernels, taken)}


def summary(kernels: Sequence[tuple[str, Span]], steps: int) -> dict[str, Any]:
    """Figures from the names and times of all that ran on the device; {} where nothing did."""
    if not kernels:
        return {}
    ours = [span for name, span in kernels if name in OURS]
    others = merged(span for name, span in kernels if name not in OURS and not name.startswith("Mem"))  # copies
    own = sum(end - start for start, end in ours)
    busy = merged(span for _, span in kernels)
    first, last = busy[0][0], busy[-1][1]
    return {
        "ms a step": (last - first) / 1000 / steps,
        "accel's kernels, ms a step": own / 1000 / steps,
        "share of them beside training": sum(covered(span, others) for span in ours) / own if own else None,
        "share of time the device stands still": 1 - sum(end - start for start, end in busy) / (last - first),
    }


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same times without overlaps, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def covered(span: Span, others: Sequence[Span]) -> float:
    """How much of a span lies in others, which do not overlap."""
    return sum(max(min(span[1], end) - max(span[0], start), 0.0) for start, end in others)


def _train(network: Any, optimizer: Any, batches: Any, steps: int, device: torch.device) -> int:
    """Trains for as many steps; returns how many."""
    loss_of = torch.nn.CrossEntropyLoss()
    for _ in range(steps):
        images, labels, _ = next(batches)
        with torch.autocast(device.type, torch.bfloat16):
            loss = loss_of(network(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    wait(device)
    return steps
