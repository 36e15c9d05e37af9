"""DataLoader with collate functions and samples of a user's own."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.lazy import search
from tests.support import helpers
from tests.support.helpers import Files, assert_same
from tests.support.loaders import TRAIN, check, epoch


def images_of_samples(samples: list[Any]) -> list[torch.Tensor]:
    return [image for image, _ in samples]


def stacked(samples: list[Any]) -> torch.Tensor:
    return torch.stack(images_of_samples(samples))


COLLATED: dict[str, Callable[[list[Any]], Any]] = {
    "stack": lambda samples: (stacked(samples), torch.tensor([index for _, index in samples])),
    "list": lambda samples: (images_of_samples(samples), [{"index": index} for _, index in samples]),
    "dict": lambda samples: {"pixels": stacked(samples).half(), "first": samples[0][0], "last": samples[-1][1]},
    "cat": lambda samples: torch.cat([image.unsqueeze(0) for image, _ in samples]),
    "channels-last": lambda samples: stacked(samples).contiguous(memory_format=torch.channels_last),
    "numpy": lambda samples: np.stack([image.numpy() for image, _ in samples]),
    "same": lambda samples: (batch := stacked(samples), batch, batch[0]),
}


class Batch:
    """A user's own type, which nobody but the user can look into."""

    def __init__(self, images: torch.Tensor) -> None:
        self.images = images


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", COLLATED.values(), ids=COLLATED)
def test_collate_functions(paths: list[str], workers: int, collate: Callable[..., Any]) -> None:
    check(Files(paths, TRAIN), num_workers=workers, collate_fn=collate)


class Mapping(dict[str, Any]):
    """Not a dict to torch's pytree."""


@dataclass
class Record:
    images: list[torch.Tensor]
    names: Any = ("a", "b")


class Slotted:
    __slots__ = ("record",)

    def __init__(self, record: Record) -> None:
        self.record = record


class NotSent:
    """An object that the queue cannot send either."""

    def __reduce__(self) -> Any:
        raise TypeError("not to be sent")


HIDDEN: dict[str, tuple[Callable[[list[torch.Tensor]], Any], Callable[[Any], list[torch.Tensor]]]] = {
    "object": (lambda images: Batch(torch.stack(images)), lambda batch: list(batch.images)),
    "dict": (lambda images: Mapping(images=images), lambda batch: batch["images"]),
    "ordered": (lambda images: OrderedDict(images=images), lambda batch: batch["images"]),
    "dataclass": (Record, lambda batch: batch.images),
    "nested": (lambda images: {"all": [Slotted(Record(images))]}, lambda batch: batch["all"][0].record.images),
    "array": (lambda images: np.array([Record(images), None]), lambda batch: batch[0].images),
    "set": (set, list),
}


def jittered(image: Image.Image) -> torch.Tensor:
    """Large enough for torch to share its sum out among threads."""
    return F.adjust_contrast(F.to_tensor(image.resize((400, 300))), 1.3)


@pytest.mark.parametrize(("collate", "images_of"), HIDDEN.values(), ids=HIDDEN)
def test_tensors_in_objects_of_the_users_are_computed_in_the_worker(
    paths: list[str], collate: Callable[[list[torch.Tensor]], Any], images_of: Callable[[Any], list[torch.Tensor]]
) -> None:
    options: dict[str, Any] = {"num_workers": 1, "collate_fn": lambda samples: collate(images_of_samples(samples))}
    torch.set_num_threads(4)
    expected, _ = helpers.run("torchvision", lambda: epoch(Files(paths, jittered), **options))
    actual, _ = helpers.run("cpu", lambda: epoch(Files(paths, jittered), **options))
    images = [image for batch in actual for image in images_of(batch)]
    assert not any(map(helpers.is_lazy, images))
    if collate is not set:
        assert_same(images, [image for batch in expected for image in images_of(batch)])


def test_looking_for_them_raises_nothing() -> None:
    lazy = helpers.run("cpu", lambda: jittered(helpers.opened(helpers.pictures()[0])[0]))[0]
    assert search.sent_along([Record([lazy]), NotSent(), lambda: 0, 3, "a", None, lazy]) == [lazy]


def test_looking_for_them_moves_nothing() -> None:
    """Sending a storage moves it into shared memory, and keeps a descriptor open until it is received."""
    storage = torch.zeros(10).untyped_storage()
    lazy = helpers.run("cpu", lambda: jittered(helpers.opened(helpers.pictures()[0])[0]))[0]
    assert search.sent_along([Slotted(Record([lazy], storage))]) == [lazy]
    assert not storage.is_shared()


def test_a_file_that_cannot_be_decoded_in_such_an_object(tmp_path: Path) -> None:
    """Raised where the batch is made: in the queue's thread it would be lost, and the parent wait for ever."""
    root = helpers.write_image_folder(tmp_path, broken={1: helpers.undecodable()})
    files = sorted(map(str, root.rglob("*.jpg")), key=lambda path: Path(path).name)
    with accel.image_backend("cpu"), pytest.raises(accel.DecodeError, match=r"001\.jpg"):
        epoch(Files(files, jittered), num_workers=1, collate_fn=lambda samples: Record(images_of_samples(samples)))


def flipped(image: Image.Image) -> Image.Image:
    return image.resize((20, 10)).transpose(0)


@pytest.mark.parametrize("workers", [0, 2])
def test_pillow_images_from_workers(paths: list[str], workers: int) -> None:
    check(Files(paths, flipped), num_workers=workers, collate_fn=images_of_samples)


def ten_crops(image: Image.Image) -> torch.Tensor:
    return torch.stack([F.to_tensor(crop) for crop in F.ten_crop(image.resize((40, 50)), [30, 20])])


@pytest.mark.parametrize("workers", [0, 2])
def test_ten_crops(paths: list[str], workers: int) -> None:
    batches = check(Files(paths, ten_crops), num_workers=workers)
    assert batches[0][0].shape == (4, 10, 3, 30, 20)
