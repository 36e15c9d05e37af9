"""Training from a folder of photos: images per second, and the share of a step that waits for data."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, Dataset
from torchvision.datasets.folder import default_loader

import accel
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


class Photos(Dataset[Any]):
    """The files, as often as a run needs them."""

    def __init__(self, files: list[str], length: int) -> None:
        self._files, self._length = files, length
        self._transform = PIPELINES["train"]()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._transform(default_loader(self._files[index % len(self._files)])), index % 1000


def measure(setting: Setting, batch_size: int = 256, steps: int = 40) -> dict[str, Any]:
    """Every model in every run, in images per second and the share of time that the loop waits for a batch."""
    found: dict[str, Any] = {"batch": batch_size, "steps": steps}
    for model in MODELS:
        found[model] = {}
        for name, backend, options, workers in RUNS:
            where = {"device": str(setting.device)} if backend == "cuda" else {}
            training = Training(model, 1000, setting.device)
            with accel.image_backend(backend, **where, **options):
                epoch = training.epoch(loader(setting, batch_size, steps + WARM_UP, workers or cores()), WARM_UP)
            found[model][name] = {"images/s": epoch.rate, "share waiting for data": epoch.waiting}
    return found


def loader(setting: Setting, batch_size: int, steps: int, workers: int) -> DataLoader[Any]:
    dataset = Photos(setting.files, batch_size * steps)
    return DataLoader(dataset, batch_size, num_workers=workers, pin_memory=setting.device.type == "cuda")
