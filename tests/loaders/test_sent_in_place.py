"""Files that a device copies out of the memory in which a worker left them, which it has locked."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.backends.cuda import host
from accel.backends.cuda.decoder import Decoder
from accel.backends.cuda.execution import Execution
from accel.processes.arena import Arena
from accel.system import memory
from accel.system.page_locks import Block
from tests.support import inside
from tests.support.cuda import needs_compiler
from tests.support.helpers import jpeg
from tests.support.processes import linux

pytestmark = [linux, needs_compiler]

CROPPED = T.Compose([T.RandomResizedCrop(32), T.ToTensor()])
IMAGES = 24


class Locks(dict[int, int]):
    """What is locked: sizes by address. As a driver does, it refuses what is no page, or locked already."""

    refuses = False

    def lock(self, address: int, size: int) -> Callable[[], object] | None:
        assert address % 4096 == size % 4096 == 0
        assert not any(address < start + taken and start < address + size for start, taken in self.items())
        if self.refuses:
            return None
        self[address] = size
        return lambda: self.pop(address)


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Locks:
    """Those of the stand-in for a device, which copies in place from nothing else."""
    found, launch = Locks(), Execution.launch

    def checked(self: Execution) -> None:
        _, _, begin, size = self.work.calls[0].tolist()
        if size and self.finished.schedule is None:  # a worker's
            assert any(start <= begin and begin + size <= start + taken for start, taken in found.items())
        launch(self)

    monkeypatch.setattr(host.HostDevice, "lock", lambda self, address, size: found.lock(address, size))
    monkeypatch.setattr(Execution, "launch", checked)
    monkeypatch.setattr(Decoder, "agrees", lambda self: True)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> ImageFolder:
    (tmp_path / "one").mkdir()
    for number in range(IMAGES):
        options: dict[str, Any] = {"progressive": True} if number == 5 else {}
        (tmp_path / "one" / f"{number:02}.jpg").write_bytes(jpeg(90 + number, 120, seed=number, **options))
    return ImageFolder(str(tmp_path), CROPPED)


def loader(dataset: ImageFolder, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, 4, num_workers=2, multiprocessing_context="fork", timeout=60, **options)


def epoch(dataset: ImageFolder, number: int) -> list[torch.Tensor]:
    torch.manual_seed(number)
    return [images.to("cpu").clone() for images, _ in loader(dataset)]


def consume(batches: Iterator[Any]) -> None:
    for images, _ in batches:
        images.to("cpu")


@pytest.fixture
def in_force() -> Iterator[None]:
    with accel.image_backend("cuda", device="cpu", threads=1, cache=None):
        yield


@pytest.mark.parametrize("refused", [False, True])
def test_the_same_values(folder: ImageFolder, locks: Locks, refused: bool) -> None:
    locks.refuses = refused
    with accel.image_backend("torchvision"):
        expected = [epoch(folder, number) for number in range(2)]
    before = accel.stats()["sent in place"]
    with accel.image_backend("cuda", device="cpu", threads=1, cache=None):
        for number, each in enumerate(expected):
            assert all(map(torch.equal, epoch(folder, number), each))
    assert accel.stats()["sent in place"] - before == (0 if refused else 2 * IMAGES)
    gc.collect()
    assert not locks


@pytest.mark.usefixtures("small_batches_indexed")
def test_files_with_indexes_are_sent_in_place(
    folder: ImageFolder, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (path, _) in enumerate(folder.samples):  # large enough for an index
        Path(path).write_bytes(jpeg(400, 300 + number, seed=number))
    monkeypatch.setattr(memory, "SETTLED", -1.0)
    with accel.image_backend("torchvision"):
        expected = [epoch(folder, number) for number in range(2)]
    sent = []
    with accel.image_backend("cuda", device="cpu", threads=1):
        for number, each in enumerate(expected):
            before = accel.stats()
            assert all(map(torch.equal, epoch(folder, number), each))
            after = accel.stats()
            sent.append([after[name] - before[name] for name in ("sent in place", "indexed")])
    assert sent == [[IMAGES, 0], [IMAGES, IMAGES]]


@pytest.mark.usefixtures("in_force")
def test_a_loader_that_is_left_half_way(folder: ImageFolder, locks: Locks) -> None:
    iterator = iter(loader(folder))
    kept = next(iterator)[0]
    assert "the device copies them from where a worker left them" in accel.explain(kept)
    next(iterator)[0].to("cpu")
    assert locks
    del iterator
    gc.collect()
    assert kept.to("cpu").shape == (4, 3, 32, 32)  # its slot stays as long as it
    assert len(locks) <= 1
    del kept
    gc.collect()
    assert not locks


@pytest.mark.usefixtures("in_force")
def test_a_worker_that_dies(folder: ImageFolder, locks: Locks) -> None:
    iterator = iter(loader(folder))
    next(iterator)[0].to("cpu")
    for worker in iterator._workers:  # type: ignore[attr-defined]
        os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"exited unexpectedly|killed by signal"):
        consume(iterator)
    assert locks
    del iterator, worker
    gc.collect()
    assert not locks


def test_pages_that_go_are_locked_no_more() -> None:
    """A worker gives a slot's pages back to the system; when the slot comes again, it has others."""
    arena = Arena.make(torch.multiprocessing)
    assert arena is not None
    known, locks, size = inside.loader_of(arena), Locks(), 1 << 20

    def received() -> tuple[int, Block]:
        slot = arena.take(size)
        assert slot is not None
        arena.sent[slot] += 1
        lease, block = known.lend(slot, size, int(arena.sent[slot]))
        assert block is not None
        assert block.address == lease.ctypes.data
        assert block.locked("gpu", locks.lock)
        arena.busy[slot] = 0
        return slot, block

    slot, block = received()
    assert received() == (slot, block)  # the same pages, locked once
    while arena.size[slot]:  # others are taken, until nobody believes in this one any more
        larger = arena.take(4 * size)
        assert larger is not None
        arena.busy[larger] = 0
    assert received()[1] is not block
    assert not block.locked("gpu", locks.lock)
    assert len(locks) == 1
    known.end()
    assert not locks


def test_an_interrupt_leaves_no_pages_locked_that_go(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = Arena.make(torch.multiprocessing)
    assert arena is not None
    known, size = inside.loader_of(arena), 1 << 16

    def received(slot: int) -> Block:
        arena.sent[slot] += 1
        block = known.lend(slot, size, int(arena.sent[slot]))[1]
        assert block is not None
        arena.busy[slot] = 0
        return block

    slots = [arena.take(size) for _ in range(3)]
    first, second, _ = [received(slot) for slot in slots if slot is not None]
    for slot in slots[:2]:
        assert slot is not None
        arena.give_back(slot)

    def interrupted(block: Block) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Block, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        known._end_blocks()
    monkeypatch.undo()
    slots = [arena.take(size) for _ in range(3)]
    blocks = {received(slot) for slot in slots if slot is not None}
    assert blocks.isdisjoint({first, second})


def test_a_fork_leaves_locks_to_its_parent() -> None:
    locks, block = Locks(), Block(4096, 8192)
    assert block.locked("gpu", locks.lock)
    child = os.fork()
    if child == 0:
        right = not block.locked("gpu", locks.lock)
        block.end()
        os._exit(0 if right and locks else 1)
    assert os.waitpid(child, 0)[1] == 0
    block.end()
    assert not locks
    assert not block.locked("gpu", locks.lock)


@pytest.mark.usefixtures("in_force")
def test_what_fails_waits_for_the_copy(folder: ImageFolder, locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory goes back to the workers when the batch is given up."""
    waited = []

    class Mark:
        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            waited.append(bool(locks))

    def refuse(*arguments: object) -> None:
        raise ValueError("no launch")

    monkeypatch.setattr(host.HostDevice, "mark", lambda self: Mark())
    monkeypatch.setattr(host.HostDevice, "launch_all", refuse)
    with pytest.raises(ValueError, match="no launch"):
        next(iter(loader(folder)))[0].to("cpu")
    assert waited == [True]
