"""Measuring accel's JPEG decoder on the device, alone: from files in host memory to pixels in the device's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from io import BytesIO
from itertools import cycle, islice
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

from accel.backends.cuda import backend
from accel.backends.cuda.decoder import Decoder
from accel.backends.cuda.jpeg import Request
from bench.gpu.setting import Photo, Setting, Step, launches, pause, rate

BATCHES = (1, 32, 128, 512, 1024)
LARGE = (3000, 4000)


def measure(setting: Setting) -> Iterator[Step]:
    """Whole photos and crops in batches of several sizes, large photos, and the worst streams."""
    for count in sorted(BATCHES, key=lambda count: count != len(setting.photos)):
        for name, wanted in (("crops", train_crop), ("crops by indexes", train_crop), ("photos", _whole)):
            if count <= 2 * len(setting.photos):
                make: Callable[[], list[Request]] = partial(_some, setting, wanted, count)
                if name.endswith("indexes"):
                    make = partial(_indexed, setting, make)
                yield f"{name}, {count} at once", partial(_batch, setting, make)
    yield "12 megapixels, 8 at once", partial(_batch, setting, lambda: [_large(setting.photos[0])] * 8)
    for name in WORST:
        yield f"{name}, 12 megapixels", partial(_batch, setting, partial(_worst, name))


def _large(photo: Photo) -> Request:
    return whole_file(enlarged(photo.data))


def _worst(name: str) -> list[Request]:
    return [whole_file(worst(name))]


def _some(setting: Setting, wanted: Callable[[Photo], Request], count: int) -> list[Request]:
    return list(map(wanted, islice(cycle(setting.photos), count)))


def _indexed(setting: Setting, make: Callable[[], list[Request]]) -> list[Request]:
    """The same files with the indexes that the device makes of them; small files have none."""
    on, batch = engine(setting.device), make()
    with on.device.enter():
        return indexed(on.jpeg, batch)


def indexed(decoder: Decoder, batch: Sequence[Request]) -> list[Request]:
    decoding = decoder.decode([each._replace(known=_NOTHING) for each in batch])
    decoding.flagged()
    return [each._replace(known=decoding.made.each().get(number)) for number, each in enumerate(batch)]


_NOTHING = np.zeros(0, np.uint8)


@cache
def engine(device: torch.device) -> Any:
    """The cuda backend's engine of a device, kept for later steps."""
    return backend._Engine(device)


def _batch(setting: Setting, make: Callable[[], Sequence[Request]]) -> dict[str, Any]:
    """Time decoding from files on the host to pixels on the device, and each kernel, by events around its launch.

    Raises:
        RuntimeError: pixels differ from Pillow's.
    """
    on, batch, device = engine(setting.device), make(), setting.device
    kernels: dict[str, list[float]] = {}
    with on.device.enter():
        _check(on.jpeg, batch[: len(setting.photos)])
        found = rate(lambda: on.jpeg.decode(batch).flagged(), len(batch), setting)
        for _ in range(setting.rounds):
            with launches(device, each=True) as spans:
                pause(device)
                on.jpeg.decode(batch).flagged()
            for kernel, (begin, end) in spans:
                kernels.setdefault(kernel, []).append(1000 * (end - begin))
    each = {kernel: median(times) for kernel, times in kernels.items()}
    return {
        **found,
        "bytes": sum(len(each.data) for each in batch),
        "kernels, ms": sum(each.values()),
        "each, ms": each,
    }


def _check(decoder: Decoder, batch: Sequence[Request]) -> None:
    decoding = decoder.decode(batch)
    flagged = decoding.flagged()
    for number, (data, (top, left, height, width), channels, _) in enumerate(batch):
        if number in flagged or decoding.addresses[number] is None:
            continue
        assert isinstance(data, bytes)
        pixels = decoding.read(number, height * width * channels).reshape(height, width, channels)
        expected = np.asarray(Image.open(BytesIO(data))).reshape(*_size(data)[1:], channels)
        if not np.array_equal(pixels, expected[top : top + height, left : left + width]):
            raise RuntimeError(f"the pixels of file {number} are not Pillow's")


def _size(data: bytes | memoryview) -> tuple[int, int, int]:
    """A file's channels, height and width."""
    with Image.open(BytesIO(data)) as image:
        return len(image.getbands()), image.height, image.width


def _whole(photo: Photo) -> Request:
    return whole_file(photo.data)


def whole_file(data: bytes) -> Request:
    channels, height, width = _size(data)
    return Request(data, (0, 0, height, width), channels)


def train_crop(photo: Photo) -> Request:
    wanted = whole_file(photo.data)
    if photo.draw.box is None:
        return wanted
    top, left, height, width = photo.draw.box
    return wanted._replace(box=(top, left, height, width))


def enlarged(data: bytes) -> bytes:
    return encoded(np.asarray(Image.open(BytesIO(data)).convert("RGB").resize(LARGE[::-1])))


def encoded(pixels: np.ndarray, **options: Any) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90, **options)
    return file.getvalue()


WORST = ("one colour", "squares", "stripes", "noise", "noise in RGB, one table for all")
"""Kinds of files whose streams might synchronise late."""


def worst(name: str) -> bytes:
    """Make a file of a ``WORST`` kind."""
    if name.startswith("noise"):
        noise = np.random.default_rng(0).integers(0, 256, (*LARGE, 3), np.uint8)
        return encoded(noise, keep_rgb="RGB" in name)
    y, x = np.mgrid[: LARGE[0], : LARGE[1]]
    grey = {"one colour": 90 + 0 * x, "squares": (y // 8 + x // 8) % 2 * 255, "stripes": x % 2 * 255}[name]
    return encoded(np.stack([grey] * 3, 2).astype(np.uint8))
