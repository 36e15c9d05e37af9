"""Epochs of a DataLoader with and without accel, and the pipelines they run."""

from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.helpers import open_rgb

TIMEOUT = 100
TRAIN = T.Compose(
    [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))]
)
FIXED = T.Compose([T.Resize((24, 32)), T.ToTensor()])


def epoch(dataset: Any, **options: Any) -> list[Any]:
    options = {"batch_size": 4, **options}
    if options.get("num_workers"):
        options.setdefault("timeout", TIMEOUT)
    return helpers.batches(DataLoader(dataset, **options))


def started_by(method: str) -> dict[str, str]:
    """A DataLoader's option; torchvision's workers are forked, which gives the same, and imports torch for none."""
    return {"multiprocessing_context": "fork" if accel.get_image_backend() == "torchvision" else method}


def check(dataset: Any, **options: Any) -> list[Any]:
    """The same epoch and random states, with and without accel; gives accel's."""
    found: list[Any] = helpers.assert_equal_runs(lambda: epoch(dataset, **options))
    assert found
    return found


def tensor(path: str, size: int = 24) -> torch.Tensor:
    return F.to_tensor(F.resize(open_rgb(path), [size, size + 8]))


def batch(paths: list[str], size: int = 24) -> torch.Tensor:
    return torch.stack([tensor(path, size) for path in paths])
