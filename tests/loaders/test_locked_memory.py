"""Files that this process has read for a batch: a device copies them out of that memory, which it has locked."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.backends.cuda import host
from accel.system import memory
from tests.support.cuda import needs_compiler
from tests.support.helpers import jpeg
from tests.support.processes import linux

pytestmark = [linux, needs_compiler]


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The memory that the stand-in has locked, sizes by addresses."""
    found: dict[int, int] = {}

    def lock(self: Any, address: int, size: int) -> Any:
        found[address] = size
        return lambda: found.pop(address)

    monkeypatch.setattr(host.HostDevice, "lock", lock)
    monkeypatch.setattr(memory, "results", memory.Results())
    return found


@pytest.fixture
def folder(tmp_path: Path) -> ImageFolder:
    (tmp_path / "one").mkdir()
    for number in range(8):
        (tmp_path / "one" / f"{number}.jpg").write_bytes(jpeg(90 + number, 120, seed=number))
    return ImageFolder(str(tmp_path), T.Compose([T.RandomCrop(40), T.ToTensor()]))


def epoch(data: ImageFolder) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [images.to("cpu") + 0 for images, _ in DataLoader(data, 4)]


def test_files_are_copied_from_where_they_were_read(folder: ImageFolder, locks: dict[int, int]) -> None:
    with accel.image_backend("torchvision"):
        expected = epoch(folder)
    with accel.image_backend("cuda", device="cpu", cache=None):
        before = accel.stats()["sent in place"]
        for _ in range(3):
            assert all(map(torch.equal, epoch(folder), expected))
        assert accel.stats()["sent in place"] - before == 24
    assert 0 < len(locks) <= 2


def test_memory_that_was_locked_before_a_fork_is_not_used_again(folder: ImageFolder, locks: dict[int, int]) -> None:
    """After it, this process may write to other pages than those that the device reads."""
    with accel.image_backend("cuda", device="cpu", cache=None):
        expected = epoch(folder)
        before = locks.copy()
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        kept = memory.results.lent(1 << 24)  # so that what was unlocked is not mapped again at its old address
        assert not locks.keys() & before.keys()
        assert all(map(torch.equal, epoch(folder), expected))
        assert locks
        del kept


def test_a_device_that_locks_nothing_gets_copies(folder: ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "results", memory.Results())
    monkeypatch.setattr(host.HostDevice, "lock", lambda self, address, size: None)
    with accel.image_backend("torchvision"):
        expected = epoch(folder)
    with accel.image_backend("cuda", device="cpu", cache=None):
        before = accel.stats()["sent in place"]
        assert all(map(torch.equal, epoch(folder), expected))
        assert accel.stats()["sent in place"] == before
