"""An unchanged script on the cuda backend, with the host in the place of the device: workers, pin step, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.backends.cuda import CudaBackend
from tests.support.cuda import DEVICE, ON_HOST, needs_compiler
from tests.support.helpers import assert_same, batches, is_late, seed_everything, undecodable, write_image_folder

pytestmark = needs_compiler

TRAIN = T.Compose(
    [T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each run of the backend had."""
    found: list[int] = []
    run = CudaBackend.run_on

    def counted(self: Any, plan: Any, device: torch.device) -> torch.Tensor:
        found.append(plan.shape[0])
        return run(self, plan, device)

    monkeypatch.setattr(CudaBackend, "run_on", counted)
    return found


def epoch(root: Path, workers: int, pinned: bool = False) -> list[Any]:
    seed_everything(3)
    loader = DataLoader(ImageFolder(root, TRAIN), 5, shuffle=True, num_workers=workers)
    given = batches(loader)
    if pinned:
        given = [(images.pin_memory() if is_late(images) else images, labels) for images, labels in given]
    return [(images.to(DEVICE).cpu(), labels) for images, labels in given]


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loaders_batches(image_folder: Path, runs: list[int], workers: int, pinned: bool) -> None:
    with accel.image_backend("torchvision"):
        expected = epoch(image_folder, workers)
    with accel.image_backend("cuda", device=DEVICE):
        found = epoch(image_folder, workers, pinned)
    assert_same(found, expected)
    assert sorted(runs) == [2, 5, 5], "the batches did not run on the backend"


def test_submit(image_folder: Path, runs: list[int]) -> None:
    with accel.image_backend("torchvision"):
        (expected, _), *_ = epoch(image_folder, 0)
    with accel.image_backend("cuda", device=DEVICE):
        seed_everything(3)
        images, _ = next(iter(DataLoader(ImageFolder(image_folder, TRAIN), 5, shuffle=True)))
        assert_same(accel.submit(images).result().cpu(), expected)
    assert runs == [5]


def test_a_single_touched_image_is_the_hosts(image_folder: Path, runs: list[int]) -> None:
    with accel.image_backend("cuda", device=DEVICE):
        image, _ = ImageFolder(image_folder)[0]
        assert image.resize((9, 9)).getpixel((3, 3)) is not None
    assert not runs


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file(tmp_path: Path, workers: int) -> None:
    root = write_image_folder(tmp_path, broken={4: undecodable(88, 78)})
    with accel.image_backend("cuda", device=DEVICE), pytest.raises(accel.DecodeError, match=r"004\.jpg"):
        epoch(root, workers)
    with accel.image_backend("cuda", device=DEVICE, on_error="replace"):
        found = torch.cat([images for images, _ in epoch(root, workers)])
    good = write_image_folder(tmp_path / "good")
    with accel.image_backend("torchvision"):
        expected = torch.cat([images for images, _ in epoch(good, workers)])
    black = [n for n in range(len(found)) if found[n].flatten(1).std(dim=1).max() == 0]
    assert len(black) == 1
    kept = [n for n in range(len(found)) if n not in black]
    assert torch.equal(found[kept], expected[kept])


@pytest.mark.skipif(not ON_HOST, reason="its differences are stated for the device")
def test_decoding_on_the_device(image_folder: Path, runs: list[int]) -> None:
    with accel.image_backend("torchvision"):
        expected = epoch(image_folder, 2)
    with accel.image_backend("cuda", device=DEVICE, exact=False):
        assert_same(epoch(image_folder, 2), expected)
    assert len(runs) == 3
