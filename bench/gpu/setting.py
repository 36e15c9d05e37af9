"""Code shared by the measurements on a device: files and crops, the host's clock, and the device's events."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.backend import backend_of
from accel.backends.cuda.device import ROOM, CudaDevice, Device, Work
from accel.backends.cuda.host import HostDevice
from accel.cli.costs import take_turns
from accel.processes import switch
from accel.recipes.recipe import Recipe
from bench.pipelines import MEAN, PIPELINES, STD, Draw

SIZE = 224

Step = tuple[str, Callable[[], dict[str, Any]]]
"""A name, and a function that measures figures. A part of the benchmark is a function that yields steps."""


class NotInstalled(Exception):
    """A step needs something that is not installed; it is reported as left out."""


class Photo(NamedTuple):
    """A file's bytes, and its geometry in the train pipeline."""

    name: str
    data: bytes
    draw: Draw


class Setting(NamedTuple):
    """The setting of every part.

    Attributes:
        folder: the files' folder. rounds: repetitions of what is timed. steps: of training.
        seconds: the time for which sustained work is watched. limit: the most seconds of a step.
        out: a folder for other results than figures.
    """

    photos: list[Photo]
    files: list[str]
    folder: Path
    device: torch.device
    rounds: int
    steps: int
    seconds: float
    limit: float
    out: Path


def photos(files: Sequence[str], count: int) -> list[Photo]:
    """``count`` photos, repeated if there are fewer, with crops drawn as by torchvision."""
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
    """The train pipeline on a photo, by torchvision's functions: lazy under accel, else computed.

    ``between``: applied to the image before it becomes a tensor.
    """
    image = Image.open(BytesIO(photo.data)).convert("RGB")
    top, left, height, width = photo.draw.box or (0, 0, image.height, image.width)
    image = F.resized_crop(image, top, left, height, width, [SIZE, SIZE])
    image = F.hflip(image) if photo.draw.flip else image
    return F.normalize(F.to_tensor(between(image)), MEAN, STD)  # type: ignore[no-any-return]


def batch(photos: Sequence[Photo], between: Callable[[Any], Any] = lambda image: image) -> torch.Tensor:
    """The train pipeline on photos, with ``between``, whose random parameters are always the same."""
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
    """Wait until the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


Clock = Callable[[Callable[[], object], torch.device], float]


def seconds(function: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds until the device is done."""
    wait(device)
    start = time.perf_counter()
    function()
    wait(device)
    return time.perf_counter() - start


_NO_MOVE = np.zeros((1, 4), np.uint64)
_ROOM = np.zeros((ROOM, 4), np.uint64)

PAUSE = 200_000_000  # cycles: some 100 ms


def pause(device: torch.device) -> None:
    """Delay the device, so that the host can queue work meanwhile."""
    if device.type == "cuda":
        torch.cuda._sleep(PAUSE)


def device_seconds(function: Callable[[], object], device: torch.device) -> float:
    """Seconds of the work that ``function`` queues on the current stream, by events, without the host's time."""
    wait(device)
    pause(device)
    begin = stamp(device)
    function()
    end = stamp(device)
    wait(device)
    return elapsed(begin, end)


def stamp(device: torch.device) -> Any:
    """An event after all work on the current stream; for the host, the time."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def elapsed(begin: Any, end: Any) -> float:
    """Seconds between two stamps that the device has passed."""
    return end - begin if isinstance(end, float) else float(begin.elapsed_time(end)) / 1000


Span = tuple[float, float]
"""A beginning and an end."""


@contextmanager
def launches(device: torch.device, each: bool = False) -> Iterator[list[tuple[str, Span]]]:
    """Every batch that accel launches in the block, by any thread, or ``each`` kernel: its name and span, in seconds
    from the beginning.

    A batch is launched at once: it is one span, "finished", from the first kernel to the last, without its copies. By
    events on its stream; the list is filled when the block ends, and nothing waits before.
    """
    kind: Any = CudaDevice if device.type == "cuda" else HostDevice
    launch, submit, marks, found = kind.launch, kind.submit, list[Any](), list[tuple[str, Span]]()

    def timed(self: Any, kernel: str, *arguments: Any) -> None:
        begin = stamp(device)
        launch(self, kernel, *arguments)
        marks.append((kernel, begin, stamp(device)))

    def submitted(self: Any, work: Work) -> None:
        *before, behind = work.calls[: work.moves]
        submit(self, work._replace(calls=np.vstack([before, _NO_MOVE, _ROOM]), moves=work.moves))
        begin = stamp(device)
        submit(self, work._replace(calls=np.vstack([_NO_MOVE, work.launches, _ROOM]), moves=1))
        marks.append(("finished", begin, stamp(device)))
        submit(self, work._replace(calls=np.vstack([behind, _ROOM]), moves=1))

    first, kind.launch, kind.submit = stamp(device), timed, Device.submit if each else submitted
    try:
        yield found
    finally:
        kind.launch, kind.submit, complete = launch, submit, marks.copy()  # other threads may be within a launch
        wait(device)
        found += [(kernel, (elapsed(first, begin), elapsed(first, end))) for kernel, begin, end in complete]


def in_turns(
    contestants: dict[str, Callable[[], object]], rounds: int, device: torch.device, clock: Clock = seconds
) -> dict[str, float]:
    """The medians of the seconds of every round, A B C A B C; the first turn of each is not counted."""
    turns = {name: lambda number, function=each: clock(function, device) for name, each in contestants.items()}
    take_turns(turns, 1)
    return {name: statistics.median(each) for name, each in take_turns(turns, rounds).items()}


def rate(function: Callable[[], object], images: int, setting: Setting) -> dict[str, float]:
    """The time of a batch from beginning to end, and images a second."""
    took = in_turns({"": function}, setting.rounds, setting.device)[""]
    return {"ms a batch": 1000 * took, "images/s": images / took}


def merged(spans: Sequence[Span]) -> list[Span]:
    """The same times without overlaps, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def standing_still(busy: Sequence[Span]) -> float:
    """The share of the time from the first to the last of these spans that is in none of them; 1 if there are none."""
    spans = merged(busy)
    if not spans:
        return 1.0
    return 1 - sum(end - start for start, end in spans) / (spans[-1][1] - spans[0][0])
