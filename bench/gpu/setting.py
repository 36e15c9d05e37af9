"""Shared by the measurements on a device: files, crops, and a clock that waits for the device."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import switch
from accel.backend import backend_of
from accel.cli.costs import take_turns
from accel.recipe import Recipe
from bench.pipelines import MEAN, PIPELINES, STD, Draw

SIZE = 224


class Photo(NamedTuple):
    """A file's bytes, and what the train pipeline does to it."""

    name: str
    data: bytes
    draw: Draw


class Setting(NamedTuple):
    """The photos, the folder of all, the device, the numbers of rounds and of training's steps, a file for a trace."""

    photos: list[Photo]
    files: list[str]
    folder: Path
    device: torch.device
    rounds: int
    steps: int
    trace: Path


def photos(files: Sequence[str], count: int) -> list[Photo]:
    """``count`` photos, from the start again where there are fewer; crops are drawn as torchvision draws them."""
    torch.manual_seed(0)
    contents = [Path(file).read_bytes() for file in files[:count]]
    sizes = [Image.open(BytesIO(content)).size for content in contents]
    found = []
    for number in range(count):
        which = number % len(contents)
        width, height = sizes[which]
        found.append(Photo(Path(files[which]).name, contents[which], PIPELINES["train"].draw((height, width))))
    return found


def transformed(photo: Photo, between: Callable[[Any], Any] = lambda image: image) -> torch.Tensor:
    """The train pipeline on one photo, through torchvision's functions: lazy under accel, else computed.

    ``between``: what happens to the image before it becomes a tensor.
    """
    image = Image.open(BytesIO(photo.data)).convert("RGB")
    top, left, height, width = photo.draw.box or (0, 0, image.height, image.width)
    image = F.resized_crop(image, top, left, height, width, [SIZE, SIZE])
    image = F.hflip(image) if photo.draw.flip else image
    return F.normalize(F.to_tensor(between(image)), MEAN, STD)  # type: ignore[no-any-return]


def batch(photos: Sequence[Photo], between: Callable[[Any], Any] = lambda image: image) -> torch.Tensor:
    """The train pipeline on photos, ``between`` with random parameters that are always the same."""
    torch.manual_seed(1)
    random.seed(1)
    return torch.stack([transformed(photo, between) for photo in photos])


def recorded(
    photos: Sequence[Photo], device: torch.device, between: Callable[[Any], Any] = lambda image: image, **options: Any
) -> tuple[Any, tuple[Recipe, ...]]:
    """The cuda backend, and the recipes of a batch."""
    with accel.image_backend("cuda", device=str(device), **options):
        lazy: Any = batch(photos, between)
        return backend_of(switch.current()), lazy.lazy.recipes


def wait(device: torch.device) -> None:
    """Until the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(function: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds until the device is done."""
    wait(device)
    start = time.perf_counter()
    function()
    wait(device)
    return time.perf_counter() - start


def in_turns(
    contestants: dict[str, Callable[[], object]], rounds: int, device: torch.device
) -> dict[str, dict[str, Any]]:
    """Seconds of every round, A B C A B C, and their medians; the first turn of each is not counted."""
    for function in contestants.values():
        seconds(function, device)

    turns = {name: lambda number, function=each: seconds(function, device) for name, each in contestants.items()}
    found = take_turns(turns, rounds)
    return {name: {"rounds": each, "median": statistics.median(each)} for name, each in found.items()}
