"""DataLoader with collate functions and samples of a user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import helpers
import numpy as np
import pytest
import torch
from helpers import Files, assert_same
from loader_support import TRAIN, check, epoch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F


def collate_stack(samples: list[Any]) -> Any:
    return torch.stack([image for image, _ in samples]), torch.tensor([index for _, index in samples])


def collate_list(samples: list[Any]) -> Any:
    return [image for image, _ in samples], [{"index": index} for _, index in samples]


def collate_dict(samples: list[Any]) -> Any:
    images = [image for image, _ in samples]
    return {"pixels": torch.stack(images).half(), "first": images[0], "numbers": [index for _, index in samples]}


def collate_cat(samples: list[Any]) -> Any:
    return torch.cat([image.unsqueeze(0) for image, _ in samples])


def collate_channels_last(samples: list[Any]) -> Any:
    return collate_stack(samples)[0].contiguous(memory_format=torch.channels_last)


def collate_numpy(samples: list[Any]) -> Any:
    return np.stack([image.numpy() for image, _ in samples])


def collate_same(samples: list[Any]) -> Any:
    batch = collate_stack(samples)[0]
    return batch, batch, batch[0]


class Batch:
    """A user's own type, which nobody but the user can look into."""

    def __init__(self, images: torch.Tensor) -> None:
        self.images = images


def collate_own_type(samples: list[Any]) -> Any:
    return Batch(collate_stack(samples)[0])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "collate",
    [collate_stack, collate_list, collate_dict, collate_cat, collate_channels_last, collate_numpy, collate_same],
    ids=lambda collate: collate.__name__,
)
def test_collate_functions(paths: list[str], workers: int, collate: Callable[..., Any]) -> None:
    check(Files(paths, TRAIN), num_workers=workers, collate_fn=collate)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_the_users_own_type(paths: list[str], workers: int) -> None:
    options = {"num_workers": workers, "collate_fn": collate_own_type}
    expected, _ = helpers.run("torchvision", lambda: epoch(Files(paths, TRAIN), **options))
    actual, _ = helpers.run("cpu", lambda: epoch(Files(paths, TRAIN), **options))
    assert_same([batch.images for batch in actual], [batch.images for batch in expected])


def collate_images(samples: list[Any]) -> Any:
    return [image for image, _ in samples]


def flipped(image: Image.Image) -> Image.Image:
    return image.resize((20, 10)).transpose(0)


@pytest.mark.parametrize("workers", [0, 2])
def test_pillow_images_from_workers(paths: list[str], workers: int) -> None:
    check(Files(paths, flipped), num_workers=workers, collate_fn=collate_images)


def ten_crops(image: Image.Image) -> torch.Tensor:
    return torch.stack([F.to_tensor(crop) for crop in F.ten_crop(image.resize((40, 50)), [30, 20])])


@pytest.mark.parametrize("workers", [0, 2])
def test_ten_crops(paths: list[str], workers: int) -> None:
    batches = check(Files(paths, ten_crops), num_workers=workers)
    assert batches[0][0].shape == (4, 10, 3, 30, 20)


JITTERED = T.Compose(
    [
        T.RandomResizedCrop(40),
        T.ColorJitter(0.4, 0.4),
        T.RandomRotation(20),
        T.RandomCrop(30),
        T.ToTensor(),
        T.RandomErasing(1),
    ]
)


@pytest.mark.parametrize("workers", [0, 2])
def test_pipelines_that_realise(paths: list[str], workers: int) -> None:
    check(Files(paths, JITTERED), num_workers=workers, shuffle=True)
