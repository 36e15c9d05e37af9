"""What the benchmark's tests ask for by name."""

from pathlib import Path

import pytest
import torch

from bench.gpu.setting import Setting, photos


@pytest.fixture
def four(paths: list[str], image_folder: Path, tmp_path: Path) -> Setting:
    """A setting of four photos, for the shortest measurements."""
    return Setting(photos(paths, 4), paths, image_folder, torch.device("cpu"), 1, 1, 0.1, 60, tmp_path)
