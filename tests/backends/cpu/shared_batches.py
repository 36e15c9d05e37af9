"""Batches that threads share."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision import transforms as T

from accel.system import memory

PIPELINE = T.Compose(
    [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.4] * 3, [0.3] * 3)]
)


class Folder:
    def __init__(self, path: Path, files: list[bytes]) -> None:
        self.path = path
        (path / "a").mkdir(parents=True)
        for number, data in enumerate(files):
            (path / "a" / f"{number:03}.jpg").write_bytes(data)

    def epoch(self, transform: Any = PIPELINE, seed: int = 0, **options: Any) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        loader = DataLoader(datasets.ImageFolder(str(self.path), transform), 8, shuffle=True, **options)
        return [torch.from_numpy(images.numpy().copy()) for images, _ in loader]


def poisoned(*given: Any) -> torch.Tensor:
    made = EMPTY(*given)
    made.view(torch.uint8).fill_(0xA5)
    return made


EMPTY = memory.results.empty


def same(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    return len(found) == len(wanted) and all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
