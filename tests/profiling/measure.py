"""A loop that is measured, and a dataset for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import Dataset

from accel.profiling import collect
from accel.profiling.measured import Measured, Process
from tests.support.loaders import TRAIN

EACH = 12  # images


def measured(loader: Any, epochs: int = 1, step: Callable[[Any], object] = lambda batch: None) -> Measured:
    collect.start()
    try:
        for _ in range(epochs):
            for batch in loader:
                step(batch)
    finally:
        result = collect.stop()
    return result


def workers(result: Measured) -> list[Process]:
    return [each for each in result.processes if each.role == "worker"]


def main(result: Measured) -> Process:
    (found,) = [each for each in result.processes if each.role == "main"]
    return found


class Numbers(Dataset[Any]):
    """Samples of next to nothing."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 2, 2), float(index))


class Sleeping(Dataset[Any]):
    """Images of a folder, with naps."""

    def __init__(self, folder: Path, user: float = 0.0, transform: Any = TRAIN) -> None:
        self.files = sorted(folder.rglob("*.jpg"))
        self.user, self.transform = user, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        if self.user:
            time.sleep(self.user)  # the statement
        return self.transform(Image.open(self.files[index]).convert("RGB")), index
