"""Training from a folder of photos: images per second, and the share of a step that waits for data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.datasets.folder import default_loader

import accel
from accel.system.cores import cores
from bench.gpu.setting import SIZE, Setting
from bench.pipelines import MEAN, STD

MODELS = ("resnet50", "shufflenet_v2_x1_0", "mobilenet_v3_large")
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
        self._transform = T.Compose(
            [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)]
        )

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
            found[model][name] = _train(
                setting, model, backend, {**where, **options}, workers or cores(), batch_size, steps
            )
    return found


def _train(
    setting: Setting, model: str, backend: str, options: dict[str, Any], workers: int, batch_size: int, steps: int
) -> dict[str, float]:
    device = setting.device
    torch.manual_seed(0)
    network = getattr(torchvision.models, model)(weights=None).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    loss_of = torch.nn.CrossEntropyLoss()
    dataset = Photos(setting.files, batch_size * (steps + WARM_UP))
    with accel.image_backend(backend, **options):
        loader = DataLoader(dataset, batch_size, num_workers=workers, pin_memory=device.type == "cuda", drop_last=True)
        waited = began = 0.0
        for step, (images, labels, seconds) in enumerate(fed(loader, device)):
            if step == WARM_UP:
                _finish(device)
                began, waited = time.perf_counter(), 0.0
            waited += seconds
            with torch.autocast(device.type, torch.bfloat16):
                loss = loss_of(network(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        _finish(device)
    total = time.perf_counter() - began
    return {"images/s": batch_size * steps / total, "share waiting for data": waited / total}


def fed(loader: Any, device: torch.device) -> Iterator[tuple[torch.Tensor, torch.Tensor, float]]:
    """Batches on the device, and how long the host waited for each. What the device waits for shows in images/s."""
    batches = iter(loader)
    while True:
        start = time.perf_counter()
        try:
            images, labels = next(batches)
        except StopIteration:
            return
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        yield images, labels, time.perf_counter() - start


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
