"""Files that this process has read for a batch: a device copies them out of that memory, which it has locked."""

import builtins
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.backends.cuda import host
from accel.system import memory
from tests.support import inside
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


def epoch(data: Dataset[Any]) -> list[torch.Tensor]:
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


# -- files that a dataset opens one by one, without workers ---------------------------------------------------


class Own(Dataset[Any]):
    """Opens files by their paths; each ``apart``-th one by a file object."""

    def __init__(self, folder: ImageFolder, apart: int = 100) -> None:
        self.paths = [path for path, _ in folder.samples]
        self.crop, self.apart = T.Compose([T.RandomCrop(40), T.ToTensor()]), apart
        self.kept: list[Any] = []

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        if place % self.apart:
            image = Image.open(self.paths[place])
        else:
            with open(self.paths[place], "rb") as file:
                image = Image.open(file)
                image.load()
        self.kept.append(image)
        return self.crop(image.convert("RGB")), place


def cuda() -> Any:
    return accel.image_backend("cuda", device="cpu", cache=None)


@pytest.mark.parametrize(("apart", "in_place"), [(100, 12), (3, 0)])
def test_files_of_ones_own_dataset(folder: ImageFolder, locks: dict[int, int], apart: int, in_place: int) -> None:
    """A batch with a file from elsewhere is gathered."""
    data = Own(folder, apart)
    with accel.image_backend("torchvision"):
        expected = epoch(data)
    with cuda():
        before, data.kept = accel.stats(), []
        for _ in range(3):
            assert all(map(torch.equal, epoch(data), expected))
        assert accel.stats()["sent in place"] - before["sent in place"] == in_place
        assert accel.stats()["fallbacks"] == before["fallbacks"]
        kept = [image.tobytes() for image in data.kept]  # of batches whose memory others use by now
    with accel.image_backend("torchvision"):
        assert kept == 3 * [Image.open(path).tobytes() for path in data.paths]


def test_files_that_find_no_room(folder: ImageFolder, locks: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Later batches have more."""
    inside.files_of_unknown_size(monkeypatch, guess=1000.0, least=1 << 12)
    data = Own(folder)
    with accel.image_backend("torchvision"):
        expected = epoch(data)
    found = []
    with cuda():
        for _ in range(4):
            before = accel.stats()["sent in place"]
            assert all(map(torch.equal, epoch(data), expected))
            found.append(accel.stats()["sent in place"] - before)
    assert found[0] == 0
    assert found[-1] > 0


def test_what_opens_files_may_be_replaced(folder: ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's ``open`` is asked, as Pillow asks it."""
    data, original = Own(folder), builtins.open
    with cuda():
        plain = epoch(data)
    last = data.paths[-1]
    monkeypatch.setattr(builtins, "open", lambda path, *args, **kwargs: original(last, *args, **kwargs))
    with accel.image_backend("torchvision"):
        expected = epoch(data)
    with cuda():
        assert all(map(torch.equal, epoch(data), expected))
    assert not all(map(torch.equal, plain, expected))
