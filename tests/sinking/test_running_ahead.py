"""Whoever runs ahead freezes what it was given, and leaves the world where the consumer is: the same test for all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from rig.tape import TapeDevice
from tests.support import helpers
from tests.support.processes import linux

pytestmark = [linux, pytest.mark.filterwarnings("ignore")]  # of loaders with more workers than cores

WEIGHT = torch.nn.Linear(1, 1)
Entry = Callable[[Any], Iterator[Any]]


def plain(loader: Any) -> Iterator[Any]:
    return iter(loader)


def queue(loader: Any) -> Iterator[Any]:
    return iter(accel.device_queue(loader, "cpu", 2))


def submitting(loader: Any) -> Iterator[Any]:
    for images, labels in loader:
        future = accel.submit(images)
        yield future.result(), labels


def returning(loader: Any) -> Iterator[Any]:
    """As a server submits: beside one that fails, so that what failed with it is submitted again."""
    for images, labels in loader:
        failing = F.resize(Image.open(BytesIO(helpers.undecodable())), images.shape[-2:])
        found, error = accel.submit([images, torch.stack([F.pil_to_tensor(failing)])], errors="return").result()
        assert isinstance(error, accel.DecodeError)
        yield found, labels


def sunk(loader: Any) -> Iterator[Any]:
    """A step that gives its batch back; in groups of one."""
    step = accel.sink(lambda images, labels: (images.clone(), labels + 0 * WEIGHT.bias.long()), 1)
    for images, labels in step(loader):
        yield images[0], labels[0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("entry", [queue, submitting, returning, sunk])
def test_left_in_the_middle(device: TapeDevice, tmp_path: Path, entry: Entry, backend: str, workers: int) -> None:
    """Values of each batch, and all random states after some of them, with files that change meanwhile."""
    helpers.write_image_folder(tmp_path / "tree", 24)
    crops = v2.Compose([v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.PILToTensor()])

    def run(entry: Entry) -> tuple[list[torch.Tensor], Any]:
        helpers.seed_everything(3)
        loader = DataLoader(ImageFolder(tmp_path / "tree", crops), 3, shuffle=True, num_workers=workers)
        found: list[torch.Tensor] = []
        for images, labels in itertools.islice(entry(loader), 4):
            found += [images + 0, labels + 0, torch.rand(2)]
        return found, helpers.random_states()

    expected, states = run(plain)
    with accel.image_backend(backend, **({"device": "cpu"} if backend == "cuda" else {})):
        found, after = run(entry)
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))
    assert helpers.known(after) == helpers.known(states)


def processed(images: list[Any]) -> Any:
    """By a processor of transformers, which makes patches."""
    return helpers.optional("transformers").Qwen2VLImageProcessor()(images, return_tensors="pt")["pixel_values"]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("collate", [torch.utils.data.default_collate, processed])
@pytest.mark.parametrize("entry", [queue, submitting, returning, sunk])
def test_what_was_recorded_is_changed(
    device: TapeDevice, tmp_path: Path, entry: Entry, collate: Callable[[list[Any]], Any], backend: str
) -> None:
    """The file, the buffer and the tensor that a batch was made of, after it was recorded."""

    def batches() -> Iterator[Any]:
        for number in range(3):
            path, buffer = tmp_path / f"{number}.jpg", BytesIO(helpers.jpeg(40, 40, seed=number))
            path.write_bytes(helpers.jpeg(40, 40, seed=10 + number))
            pixels = torch.full((3, 40, 40), number, dtype=torch.uint8)
            images = [F.pil_to_tensor(F.crop(Image.open(each), 2, 2, 20, 20)) for each in (path, buffer)]
            images.append(F.hflip(F.crop(pixels, 2, 2, 20, 20)))
            batch = collate(images)
            path.write_bytes(helpers.jpeg(40, 40, seed=99))
            buffer.getbuffer()[:] = bytes(len(buffer.getbuffer()))
            pixels += 1
            yield batch, torch.tensor([number])

    expected = [images + 0 for images, _ in batches()]
    with accel.image_backend(backend, **({"device": "cpu"} if backend == "cuda" else {})):
        found = [images + 0 for images, _ in entry(batches())]
    assert all(map(torch.equal, found, expected))
    assert len(found) == 3
