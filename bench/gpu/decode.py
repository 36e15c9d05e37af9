"""accel's JPEG decoder on the device, alone: files in host memory to pixels in the device's; and with ``exact=False``,
how far its pixels are from Pillow's, over the photos and files of every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.backends.cuda import backend
from accel.backends.cuda.jpeg import Decoder, Wanted
from accel.cli import samples
from accel.cli.error_stats import ErrorStats
from accel.cli.harness import computed
from bench.gpu.setting import Photo, Setting, in_turns, seconds

BATCHES = (1, 32, 128, 512, 1024)
LARGE = (3000, 4000)


def measure(setting: Setting) -> dict[str, Any]:
    """Whole photos and crops in batches of several sizes, kernel by kernel, large photos, and the worst streams.

    Raises:
        RuntimeError: pixels differ from Pillow's.
    """
    engine = backend._Engine(setting.device)
    whole = [whole_file(photo.data) for photo in setting.photos]
    crops = [train_crop(photo) for photo in setting.photos]
    wanted = {
        f"{name}, {count} at once": list(islice(cycle(each), count))
        for name, each in (("photos", whole), ("crops", crops))
        for count in BATCHES
        if count <= 2 * len(each)
    }
    wanted["12 megapixels, 8 at once"] = [whole_file(enlarged(setting.photos[0].data))] * 8
    wanted |= {name: [whole_file(file)] for name, file in worst().items()}
    with engine.device.enter():
        for name, batch in wanted.items():
            _check(engine.jpeg, name, batch[: len(setting.photos)])
        times = in_turns(
            {name: lambda batch=batch: engine.jpeg.decode(batch).flagged() for name, batch in wanted.items()},  # type: ignore[misc]
            setting.rounds,
            setting.device,
        )
        kernels = _kernels(engine, whole, setting)
    found = {
        name: {
            "ms a batch": 1000 * times[name]["median"],
            "images/s": len(batch) / times[name]["median"],
            "bytes": sum(len(each.data) for each in batch),
        }
        for name, batch in wanted.items()
    }
    return {"batches": found, "kernels, ms": kernels}


def _kernels(engine: Any, batch: Sequence[Wanted], setting: Setting) -> dict[str, float]:
    """Every kernel's milliseconds for all photos, each waited for."""
    launch, found = engine.device.launch, dict[str, float]()

    def timed(kernel: str, *arguments: Any) -> None:
        found[kernel] = 1000 * seconds(lambda: launch(kernel, *arguments), setting.device)

    engine.device.launch = timed
    try:
        engine.jpeg.decode(batch).flagged()
    finally:
        engine.device.launch = launch
    return found


def _check(decoder: Decoder, name: str, batch: Sequence[Wanted]) -> None:
    decoding = decoder.decode(batch)
    flagged = decoding.flagged()
    for number, (data, (top, left, height, width), channels) in enumerate(batch):
        if number in flagged or decoding.addresses[number] is None:
            continue
        pixels = decoding.read(number, height * width * channels).reshape(height, width, channels)
        expected = np.asarray(Image.open(BytesIO(data))).reshape(*_size(data)[1:], channels)
        if not np.array_equal(pixels, expected[top : top + height, left : left + width]):
            raise RuntimeError(f"{name}: the pixels of file {number} are not Pillow's")


def _size(data: bytes | memoryview) -> tuple[int, int, int]:
    """Channels, height and width."""
    with Image.open(BytesIO(data)) as image:
        return len(image.getbands()), image.height, image.width


def whole_file(data: bytes) -> Wanted:
    channels, height, width = _size(data)
    return Wanted(data, (0, 0, height, width), channels)


def train_crop(photo: Photo) -> Wanted:
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


def worst() -> dict[str, bytes]:
    """Files whose streams could be expected to fall in step late."""
    height, width = LARGE
    y, x = np.mgrid[:height, :width]
    made = {"one colour": 90 + 0 * x, "squares": (y // 8 + x // 8) % 2 * 255, "stripes": x % 2 * 255}
    files = {name: encoded(np.stack([grey] * 3, 2).astype(np.uint8)) for name, grey in made.items()}
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    files["noise"] = encoded(noise)
    files["noise in RGB, one table for all"] = encoded(noise, keep_rgb=True)
    return {f"{name}, 12 megapixels": file for name, file in files.items()}


KINDS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "grey": {},
}
SIZES = ((375, 500), (401, 333), (64, 48), (1080, 1920))


def quality(setting: Setting) -> dict[str, Any]:
    """The largest and the mean difference of whole decoded pictures, in levels, by kind of file."""
    found = {"photos": _differences([Path(file).read_bytes() for file in setting.files], setting)}
    for kind, options in KINDS.items():
        found[kind] = _differences([_made(size, number, kind, options) for number, size in enumerate(SIZES)], setting)
    return found


def _made(size: tuple[int, int], number: int, kind: str, options: dict[str, Any]) -> bytes:
    picture = samples.picture(number, (size[1], size[0])).convert("L" if kind == "grey" else "RGB")
    return encoded(np.asarray(picture), **options)


def _opened(data: bytes) -> torch.Tensor:
    return F.pil_to_tensor(Image.open(BytesIO(data)))  # type: ignore[no-any-return]


def _differences(files: list[bytes], setting: Setting) -> dict[str, Any]:
    stats, fallbacks = ErrorStats(), Counter(accel.stats()["fallbacks"])
    for data in files:
        wanted = _opened(data)
        with accel.image_backend("cuda", device=str(setting.device), exact=False):
            stats.add(wanted, computed(partial(_opened, data), 0, setting.device))
    declined = Counter(accel.stats()["fallbacks"]) - fallbacks
    return {"files": len(files), "max": int(stats.largest), "mean": stats.mean, "fallbacks": dict(declined)}
