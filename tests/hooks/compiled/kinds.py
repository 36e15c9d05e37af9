"""torchvision's datasets that keep their images in one array."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torchvision import datasets

COUNT = 37
rng = np.random.default_rng(0)
PLANES = rng.integers(0, 256, (COUNT, 3, 32, 32), np.uint8)
GREY = rng.integers(0, 256, (COUNT, 28, 28), np.uint8)
LABELS = rng.integers(0, 10, COUNT)


def made(cls: type, transform: Any, **attributes: Any) -> Any:
    """A dataset as it is once it has read its files."""
    dataset = cls.__new__(cls)
    datasets.VisionDataset.__init__(dataset, root="", transform=transform)
    vars(dataset).update(train=True, **attributes)
    return dataset


def by_rows() -> Any:
    return np.ascontiguousarray(PLANES.transpose(0, 2, 3, 1))


KINDS: dict[str, Callable[[Any], Any]] = {
    "cifar": lambda t: made(datasets.CIFAR10, t, data=PLANES.transpose(0, 2, 3, 1), targets=LABELS.tolist()),
    "cifar-by-rows": lambda t: made(datasets.CIFAR100, t, data=by_rows(), targets=LABELS.tolist()),
    "svhn": lambda t: made(datasets.SVHN, t, data=PLANES.copy(), labels=LABELS.copy()),
    "mnist": lambda t: made(datasets.FashionMNIST, t, data=torch.from_numpy(GREY.copy()), targets=torch.tensor(LABELS)),
    "usps": lambda t: made(datasets.USPS, t, data=GREY.copy(), targets=LABELS.tolist()),
}
