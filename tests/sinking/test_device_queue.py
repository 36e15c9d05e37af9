"""``accel.device_queue`` on a stand-in device whose work runs late."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import accel
from accel.runtime import streams
from rig.tape import TapeDevice
from tests.support import helpers, inside
from tests.support.processes import eventually, linux

pytestmark = [linux, pytest.mark.filterwarnings("ignore")]  # of loaders with more workers than cores
WAYS: dict[str, dict[str, Any]] = {
    "no workers": {},
    "workers": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for number in range(22):
        (folder / str(number % 2)).mkdir(exist_ok=True)
        (folder / str(number % 2) / f"{number}.jpg").write_bytes(helpers.jpeg(50 + number, 60, seed=number))
    return folder


def loader(tree: Path, **options: Any) -> DataLoader[Any]:
    crops = v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), v2.PILToTensor()])
    return DataLoader(ImageFolder(tree, crops), **{"batch_size": 4, "shuffle": True, **options})


def epochs(batches: Any, after: int | None = None) -> list[torch.Tensor]:
    """What a training sees of two epochs, of which the first may be left early; and the random states after them."""
    torch.manual_seed(1)
    found = []
    for epoch in range(2):
        for images, labels in itertools.islice(batches, None if epoch else after):
            assert type(images) is type(labels) is torch.Tensor
            found += [images.clone(), labels.clone(), torch.rand(1)]
    return [*found, torch.get_rng_state()]


@pytest.mark.parametrize("after", [None, 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["torchvision", "cpu", "cuda"])
def test_as_the_plain_loop(device: TapeDevice, tree: Path, backend: str, way: str, after: int | None) -> None:
    """Batches, labels and random numbers, also where the first epoch is left early."""
    expected = epochs(loader(tree, **WAYS[way]), after)
    with accel.image_backend(backend, **({"device": "cpu"} if backend == "cuda" else {})):
        found = epochs(accel.device_queue(loader(tree, **WAYS[way]), "cpu"), after)
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))


def test_spawned_workers(device: TapeDevice, tree: Path) -> None:
    spawned = {"num_workers": 1, "multiprocessing_context": "spawn"}
    with accel.image_backend("cuda", device="cpu"):
        found = epochs(accel.device_queue(loader(tree, **spawned), "cpu"), 2)
    assert all(map(torch.equal, found, epochs(loader(tree, num_workers=1), 2)))


class Numbers(Dataset[Any]):
    """Samples that say what they are; one cannot be made."""

    def __init__(self, count: int, broken: int = -1) -> None:
        self.count, self.broken = count, broken

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index == self.broken:
            raise ArithmeticError(f"sample {index}")
        return torch.full((3,), float(index)), {"index": index, "name": f"{index}.jpg"}


def first(batch: Any) -> int:
    return int(batch[0][0, 0] + 0)  # an operator waits for the device


@pytest.fixture
def sent(device: TapeDevice, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows with every tensor that goes to the device."""
    return inside.spy(monkeypatch, streams, "transferred")


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_so_many_batches_ahead_and_no_more(sent: list[Any], depth: int) -> None:
    ahead = iter(accel.device_queue(DataLoader(Numbers(40), 2, num_workers=3, prefetch_factor=3), "cpu", depth))
    for number in range(20):
        assert first(next(ahead)) == 2 * number
        expected = 2 * min(number + 1 + depth, 20)
        eventually(lambda wanted=expected: len(sent) >= wanted)  # type: ignore[misc]
        assert len(sent) == expected
    assert next(ahead, None) is None


def test_a_batch_that_is_kept(device: TapeDevice) -> None:
    queue = accel.device_queue(DataLoader(Numbers(40), 2, num_workers=2), "cpu", 1)
    kept = list(queue)
    device.finish()
    assert [first(each) for each in kept] == list(range(0, 40, 2))
    assert kept[3][1]["name"] == ["6.jpg", "7.jpg"]
    assert len(queue) == 20


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_at_its_place_and_the_rest_after_it(device: TapeDevice, workers: int) -> None:
    ahead = iter(accel.device_queue(DataLoader(Numbers(12, broken=5), 2, num_workers=workers), "cpu"))
    found: list[Any] = []
    while len(found) < 6:
        found.append(first(next(ahead)) if len(found) != 2 else helpers.attempt(lambda: next(ahead)))
    assert "sample 5" in str(found.pop(2))
    assert found == [0, 2, 6, 8, 10]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_a_file_that_cannot_be_decoded_is_named(device: TapeDevice, tmp_path: Path, backend: str) -> None:
    tree = helpers.write_image_folder(tmp_path, 8, {5: helpers.undecodable()})
    with accel.image_backend(backend, **({"device": "cpu"} if backend == "cuda" else {})):
        ahead = iter(accel.device_queue(loader(tree, shuffle=False, batch_size=2, num_workers=1), "cpu"))
        with pytest.raises(accel.DecodeError, match=r"dataset index \d"):
            list(ahead)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        yield from (torch.tensor([each]) for each in range(info.id, 5 + 4 * info.id, info.num_workers))


@pytest.mark.parametrize("persistent", [False, True])
def test_iterable_datasets_whose_workers_end_at_different_times(device: TapeDevice, persistent: bool) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(Stream(), 2, num_workers=2, persistent_workers=persistent)

    plain, queue = make(), accel.device_queue(make(), "cpu", 1)
    for _ in range(2):
        assert [(each + 0).tolist() for each in queue] == [each.tolist() for each in plain]


def test_two_at_once_and_left_early(device: TapeDevice) -> None:
    gc.collect()  # what errors of other tests refer to
    before = threading.active_count()
    one, two = (accel.device_queue(DataLoader(Numbers(20), 2, num_workers=1), "cpu", 1) for _ in range(2))
    assert [(first(a), first(b)) for a, b in zip(one, two, strict=True)] == [(n, n) for n in range(0, 20, 2)]
    for number in range(6):
        ahead = iter(one)
        for _ in range(number):
            next(ahead)
        del ahead
    eventually(lambda: not [each for each in threading.enumerate() if each.name == "accel-arrivals"])
    assert threading.active_count() <= before + 4  # launchers stay


def test_what_fails_on_the_way_to_the_device(device: TapeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(transfer: Any, tensor: torch.Tensor, to: torch.device) -> torch.Tensor:
        if tensor[0].eq(8).any():
            raise RuntimeError("out of memory")
        return transfer(tensor, to)  # type: ignore[no-any-return]

    inside.wrap(monkeypatch, streams, "transferred", full)
    ahead = iter(accel.device_queue(DataLoader(TensorDataset(torch.arange(20)), 2, num_workers=2), "cpu", 2))
    assert [int(next(ahead)[0][0] + 0) for _ in range(4)] == [0, 2, 4, 6]
    with pytest.raises(RuntimeError, match=r"out of memory"):
        next(ahead)
    assert int(next(ahead)[0][0] + 0) == 10


class Reading(torch.utils.data.Sampler[int]):
    """Draws from what the training does meanwhile."""

    def __init__(self) -> None:
        self.seen = 0

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[int]:
        for _ in range(40):
            yield int(torch.randint(1000, ())) * 10 + self.seen


class Anything(Numbers):
    def __getitem__(self, index: int) -> Any:
        return torch.tensor([[float(index)]])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_reads_the_training(device: TapeDevice, workers: int) -> None:
    """Indices are drawn when they are without the queue."""

    def run(wrap: Any) -> list[int]:
        torch.manual_seed(0)
        sampler, found = Reading(), []
        for batch in wrap(DataLoader(Anything(40), 2, sampler=sampler, num_workers=workers)):
            found += [int(batch[0, 0] + 0), int(torch.randint(100, ()))]
            sampler.seen += 1
        return found

    assert run(lambda loader: accel.device_queue(loader, "cpu", 5)) == run(lambda loader: loader)


def test_the_stand_in_shows_what_is_not_waited_for(device: TapeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "arrive", lambda result, event: result)
    found = [batch[0].clone() for batch in accel.device_queue(DataLoader(Numbers(8), 2, num_workers=1), "cpu")]
    device.finish()
    assert [int(each[0, 0] + 0) for each in found] != [0, 2, 4, 6]


@pytest.mark.parametrize("depth", [0, -1, 2.5, True, None])
def test_a_wrong_depth(depth: Any) -> None:
    with pytest.raises(ValueError, match=r"depth must be a positive int"):
        accel.device_queue([], "cpu", depth)


def test_on_the_host_batches_are_plain(tree: Path) -> None:
    with accel.image_backend("cpu"):
        found = epochs(accel.device_queue(loader(tree, num_workers=2), "cpu"))
    assert all(map(torch.equal, found, epochs(loader(tree, num_workers=2))))


class Drawing(Numbers):
    """Samples that say how often their worker was asked, and what it drew."""

    def __getitem__(self, index: int) -> Any:
        self.asked = getattr(self, "asked", 0) + 1
        return torch.tensor([float(index), self.asked, torch.rand(()).item()])


@pytest.mark.parametrize("plain_first", [False, True])
def test_persistent_workers_live_on_from_queue_to_queue(device: TapeDevice, plain_first: bool) -> None:
    def run(wrap: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        loader = DataLoader(Drawing(12), 2, num_workers=2, persistent_workers=True)
        ways = [(lambda each: each) if plain_first else wrap, wrap, wrap]
        return [batch + 0 for way in ways for batch in way(loader)]

    found = run(lambda loader: accel.device_queue(loader, "cpu"))
    assert all(map(torch.equal, found, run(lambda loader: loader)))
    assert found[-1][0, 1] > 12 // 2


class Odd(Numbers):
    def __getitem__(self, index: int) -> Any:
        return index


class Named(list[Any]):
    name = ""


def odd(samples: list[int]) -> Any:
    named = Named([torch.tensor(samples)])
    named.name = "these"
    packed = torch.nn.utils.rnn.pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    return {
        "packed": packed,
        "sparse": torch.eye(3).to_sparse(),
        "named": named,
        "array": np.array(samples),
        "none": None,
        "empty": torch.empty(0, 3),
    }


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_any_structure(device: TapeDevice, workers: int) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(Odd(4), 2, num_workers=workers, collate_fn=odd)

    for found, batch in zip(accel.device_queue(make(), "cpu"), make(), strict=True):
        assert torch.equal(found["packed"].data + 0, batch["packed"].data)
        assert torch.equal(found["sparse"].to_dense(), torch.eye(3))
        assert found["named"].name == "these"
        assert torch.equal(found["named"][0] + 0, batch["named"][0])
        assert found["array"].tolist() == batch["array"].tolist()
        assert found["none"] is None
        assert found["empty"].shape == (0, 3)


def test_a_sink_of_batches_with_arrays(device: TapeDevice) -> None:
    """They may be used in any way, so no step is captured."""
    sunk = accel.sink(lambda batch: batch["named"][0].sum(), -1, device="cpu")
    assert next(sunk(DataLoader(Odd(40), 2, collate_fn=odd))).tolist() == [4 * n + 1 for n in range(20)]
    assert "its batches are of another form" in sunk.reason
