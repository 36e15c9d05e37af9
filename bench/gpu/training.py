"""Measuring training from a folder of photos: images per second, the share of time waiting for data, and a trace by
torch.profiler of an unchanged loop, to see whether batches are made beside the training step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from accel.backends.cuda.compile import UNITS
from accel.cli.data import open_folder
from accel.cli.harness import Contestant, from_loader
from accel.cli.pipelines import PIPELINES
from accel.system.cores import cores
from bench.gpu.setting import Setting, Span, Step, merged, standing_still
from bench.train import Training

MODELS = ("shufflenet", "mobilenet", "resnet50")
WARM_UP = 5
RUNS: tuple[tuple[str, str, int | None], ...] = (
    ("torchvision, all cores", "torchvision", None),
    ("accel, exact, 4 workers", "cuda", 4),
    ("accel, exact, 2 workers", "cuda", 2),
    ("accel, exact, all cores", "cuda", None),
)
"""Name, backend, workers (None for one for each core)."""


def measure(setting: Setting) -> Iterator[Step]:
    """Every model in every run, in images per second and the share of time that the loop waits for a batch."""
    for model in MODELS:
        for name, backend, workers in RUNS:
            yield f"{model}, {name}", partial(_run, setting, model, backend, workers)


def _run(setting: Setting, model: str, backend: str, workers: int | None) -> dict[str, Any]:
    batch_size = min(len(setting.photos), 256)
    training = Training(model, 1000, setting.device)
    contestant = loop(setting, batch_size, setting.steps + WARM_UP, workers or cores(), backend, {})
    with contestant.in_force():
        epoch = training.epoch(contestant.epoch(0), WARM_UP)
    found = {"batch": batch_size, "images/s": epoch.rate, "share waiting for data": epoch.waiting}
    return {**found, "CPU s an image": epoch.cpu_seconds}


def loop(
    setting: Setting, batch_size: int, steps: int, workers: int, backend: str, options: dict[str, Any], **more: Any
) -> Contestant:
    """A loader of the folder's photos, repeated for so many steps; ``more``: arguments of the DataLoader."""
    data = open_folder(setting.folder, PIPELINES["train"]())
    data = data._replace(order=list(islice(cycle(data.order), batch_size * steps)))
    where = {"device": str(setting.device)} if backend == "cuda" else {}
    how = {"batch_size": batch_size, "num_workers": workers, **more}
    return from_loader(backend, data, backend, {**where, **options}, how, target=setting.device)


MODEL = "resnet50"
OURS = frozenset(kernel for kernels in UNITS.values() for kernel in kernels)


def overlap(setting: Setting) -> Iterator[Step]:
    """Trace an unchanged loop."""
    yield "two workers", partial(_overlap, setting)


def _overlap(setting: Setting) -> dict[str, Any]:
    """Train a few steps with ``pin_memory=True`` and two workers, and write a trace (chrome://tracing, Perfetto).

    The figures are the time of accel's kernels a step, the share of that in which the device was training as well, and
    the share of the loop in which the device did neither.
    """
    device, batch_size, steps = setting.device, min(len(setting.photos), 256), min(setting.steps, 10)
    training = Training(MODEL, 1000, device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    contestant = loop(setting, batch_size, steps + WARM_UP, 2, "cuda", {})
    with contestant.in_force():
        batches = contestant.epoch(0)
        training.epoch(islice(batches, WARM_UP), WARM_UP - 1)
        with profile(activities=activities) as recorded:
            training.epoch(batches, 0)
    trace = setting.out / "overlap.trace.json.gz"
    recorded.export_chrome_trace(str(trace))
    kernels = [
        (event.name, (event.time_range.start, event.time_range.end))
        for event in recorded.events() or ()
        if event.device_type != DeviceType.CPU
    ]
    return {"trace": trace.name, "model": MODEL, "batch": batch_size, "steps": steps, **summary(kernels, steps)}


def summary(kernels: Sequence[tuple[str, Span]], steps: int) -> dict[str, Any]:
    """Figures from the names and times, in microseconds, of all that ran on the device; {} if nothing did."""
    if not kernels:
        return {}
    ours = [span for name, span in kernels if name in OURS]
    others = merged([span for name, span in kernels if name not in OURS and not name.startswith("Mem")])  # copies
    own = sum(end - start for start, end in ours)
    first, last = min(start for _, (start, _) in kernels), max(end for _, (_, end) in kernels)
    return {
        "ms a step": (last - first) / 1000 / steps,
        "accel's kernels, ms a step": own / 1000 / steps,
        "share of them beside training": sum(covered(span, others) for span in ours) / own if own else None,
        "share of time the device stands still": standing_still([span for _, span in kernels]),
    }


def covered(span: Span, others: Sequence[Span]) -> float:
    """The length of the part of a span that is in others, which must not overlap."""
    return sum(max(min(span[1], end) - max(span[0], start), 0.0) for start, end in others)
