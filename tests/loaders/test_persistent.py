"""Workers that live on get the backend that is in force at each ``iter()``."""

import gc
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T

import accel
from tests.support.cuda import needs_compiler
from tests.support.helpers import Files, assert_same
from tests.support.loaders import TIMEOUT
from tests.support.processes import linux

CROPS = T.Compose([T.RandomResizedCrop(40), T.RandomHorizontalFlip(), T.ToTensor()])
pytestmark = linux


def made(paths: list[str], **options: Any) -> DataLoader[Any]:
    return DataLoader(
        Files(paths, CROPS), 4, shuffle=True, num_workers=2, persistent_workers=True, timeout=TIMEOUT, **options
    )


def epochs(paths: list[str], backends: list[str], *, block: bool, **options: Any) -> tuple[list[Any], list[int]]:
    """The batches of an epoch under each backend, and the images that accel computed for each."""
    torch.manual_seed(5)
    loader, batches, counts = made(paths, **options), [], []
    try:
        for name in backends:
            before = accel.stats()["images"]
            given = {"device": "cpu"} if name == "cuda" else {}
            if not block:
                accel.set_image_backend(name, **given)
            with accel.image_backend(name, **given) if block else nullcontext():
                batches.append([(images.to("cpu").clone(), labels) for images, labels in loader])
            counts.append(accel.stats()["images"] - before)
    finally:
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()
    return batches, counts


OFF_ON = ["torchvision", "cpu", "torchvision", "cpu", "cpu"]
ON_OFF = ["cpu", "torchvision", "torchvision", "cpu"]


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("backends", [OFF_ON, ON_OFF], ids=["off first", "on first"])
def test_the_backend_of_each_epoch(paths: list[str], backends: list[str], block: bool, start: str) -> None:
    """With the random numbers of workers that live on."""
    expected, none = epochs(paths, ["torchvision"] * len(backends), block=False)
    found, counts = epochs(paths, backends, block=block, multiprocessing_context=start)
    assert_same(found, expected)
    assert not any(none)
    assert counts == [len(paths) * (name != "torchvision") for name in backends]


@needs_compiler
@pytest.mark.parametrize("backends", [["torchvision", "cuda", "cpu", "cuda"], ["cuda", "torchvision", "cuda", "cpu"]])
def test_one_backend_after_another(paths: list[str], backends: list[str]) -> None:
    expected, _ = epochs(paths, ["torchvision"] * len(backends), block=False)
    found, counts = epochs(paths, backends, block=False)
    assert_same(found, expected)
    assert counts == [len(paths) * (name != "torchvision") for name in backends]


def test_an_iterator_that_only_the_collector_finds(paths: list[str]) -> None:
    """As after an error in a dataset, which torch raises anew: its workers end, and nothing is printed."""
    loader = made(paths)
    with accel.image_backend("cpu"):
        iterator: Any = iter(loader)
        next(iterator)
        workers, iterator.itself = iterator._workers, iterator
        del iterator, loader
        gc.collect()
    for worker in workers:
        worker.join(TIMEOUT)
        assert worker.exitcode == 0


def test_an_option_changes(paths: list[str], tmp_path: Any) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8 no picture")
    loader = made([*paths[:3], str(broken)])
    with accel.image_backend("cpu"), pytest.raises(Exception, match="cannot identify image file"):
        list(loader)
    with accel.image_backend("cpu", on_error="replace"):
        assert len(list(loader)) == 1
    with accel.image_backend("cpu"), pytest.raises(Exception, match="cannot identify image file"):
        list(loader)
    loader._iterator._shutdown_workers()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["torchvision", "cpu"])
def test_a_worker_with_a_backend_of_its_own_keeps_it(paths: list[str], name: str) -> None:
    """If its parent's does not change."""
    accel.set_image_backend(name)
    loader = made(paths, worker_init_fn=lambda _: accel.set_image_backend("cpu", threads=1))
    for _ in range(3):
        before = accel.stats()["images"]
        list(loader)
        assert accel.stats()["images"] - before == len(paths)
    loader._iterator._shutdown_workers()  # type: ignore[union-attr]
