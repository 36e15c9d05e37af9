"""Training from a folder of photos: images per second, and the share of a step that waits for data."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

from accel.cli.data import open_folder
from accel.cli.harness import Contestant, from_loader
from accel.cli.pipelines import PIPELINES
from accel.system.cores import cores
from bench.gpu.setting import Setting
from bench.train import Training

MODELS = ("resnet50", "shufflenet", "mobilenet")
WARM_UP = 5
RUNS: tuple[tuple[str, str, dict[str, Any], int | None], ...] = (
    ("torchvision, all cores", "torchvision", {}, None),
    ("accel, exact, 1 worker", "cuda", {}, 1),
    ("accel, exact, 2 workers", "cuda", {}, 2),
    ("accel, exact, all cores", "cuda", {}, None),
    ("accel, exact=False, 2 workers", "cuda", {"exact": False}, 2),
)
"""Name, backend, its options, workers (None: one for each core)."""


def measure(setting: Setting) -> dict[str, Any]:
    """Every model in every run, in images per second and the share of time that the loop waits for a batch."""
    batch_size, steps = min(len(setting.photos), 256), setting.steps
    found: dict[str, Any] = {"batch": batch_size, "steps": steps}
    for model in MODELS:
        found[model] = {}
        for name, backend, options, workers in RUNS:
            training = Training(model, 1000, setting.device)
            contestant = loop(setting, batch_size, steps + WARM_UP, workers or cores(), backend, options)
            with contestant.in_force():
                epoch = training.epoch(contestant.epoch(0), WARM_UP)
            found[model][name] = {"images/s": epoch.rate, "share waiting for data": epoch.waiting}
    return found


def loop(
    setting: Setting, batch_size: int, steps: int, workers: int, backend: str, options: dict[str, Any]
) -> Contestant:
    """The folder's photos, as often as so many steps need them."""
    data = open_folder(setting.folder, PIPELINES["train"]())
    data = data._replace(order=list(islice(cycle(data.order), batch_size * steps)))
    where = {"device": str(setting.device)} if backend == "cuda" else {}
    how = {"batch_size": batch_size, "num_workers": workers}
    return from_loader(backend, data, backend, {**where, **options}, how, target=setting.device)
