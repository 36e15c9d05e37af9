"""Servers: from JPEG files in memory to one batch of ImageNet's evaluation, on the host or on a device.

Where the host decodes, others than accel have as many threads as there are cores, and each image is one's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from io import BytesIO
from itertools import cycle, islice
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg

import accel
from accel.cli.error_stats import ANOTHER_PICTURE, ErrorStats
from accel.cli.harness import compare
from accel.system.cores import cores
from bench.contestants.contestant import planes, transformed
from bench.measure import levels
from bench.pipelines import MEAN, PIPELINES, STD

SIZES = (1, 8, 32)
"""Images of a request."""

Answer = Callable[[Sequence[bytes]], torch.Tensor]
"""A function of JPEG files that returns float32 [images, 3, 224, 224] on the device, which may not have finished it."""
Decode = Callable[[Sequence[bytes]], Sequence[torch.Tensor]]
"""A function of JPEG files that returns their pixels, uint8 [3, height, width] each, on the device."""


class Server(NamedTuple):
    """A way to answer requests.

    Attributes:
        title: its name in tables. settings: in words.
        make: makes the function that answers, given the device and a pool of threads for what the host does.
        modules: the modules that it needs.
        exact: whether it promises torchvision's exact values.
        backend, options: what is in force while it answers.
    """

    title: str
    settings: str
    make: Callable[[torch.device, Executor], Answer]
    modules: tuple[str, ...] = ()
    exact: bool = False
    backend: str = "torchvision"
    options: dict[str, Any] = {}  # noqa: RUF012

    @contextmanager
    def opened(self, device: torch.device) -> Iterator[Answer]:
        """Make its answers for a device; it is answered within ``in_force``."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # else torch's own threads wait for each other, beside the pool's
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The image decoding")  # of torchvision, deprecated since 0.29
                with ThreadPoolExecutor(cores(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
                    yield self.make(device, pool)
        finally:
            torch.set_num_threads(threads)

    def in_force(self, device: torch.device) -> AbstractContextManager[Any]:
        """A context that must be entered while it answers."""
        where = {"device": str(device)} if self.backend == "cuda" else {}
        return accel.image_backend(self.backend, **where, **self.options)

    def check(self, answer: Answer, device: torch.device, files: Sequence[bytes]) -> ErrorStats:
        """Compare an answer with torchvision's on Pillow's images; return how far inexact ones are from it.

        Raises:
            Different: it is not torchvision's or, of inexact ones, not near it.
        """
        stats = ErrorStats(levels(_EVAL), ANOTHER_PICTURE)
        wanted = torch.stack(list(map(_scripted(), files)))
        with self.in_force(device):
            found = answer(files).cpu()
        compare(wanted, found, [f"image {number}" for number in range(len(files))], None if self.exact else stats)
        return stats


def requests(files: Sequence[bytes], size: int) -> Iterator[list[bytes]]:
    """Requests without end, each for the files that follow those of the one before."""
    endless = cycle(files)
    while True:
        yield list(islice(endless, size))


_EVAL = PIPELINES["eval"]


def _scripted() -> Callable[[bytes], torch.Tensor]:
    """torchvision's classes on an image of Pillow's, as most scripts have them."""
    transform = _EVAL.v1()
    return lambda data: transform(Image.open(BytesIO(data)).convert("RGB"))


def _in_threads(device: torch.device, pool: Executor) -> Answer:
    one = _scripted()
    return lambda files: torch.stack(list(pool.map(one, files))).to(device)


def _submitted(device: torch.device, pool: Executor) -> Answer:
    one = _scripted()
    return lambda files: torch.stack(accel.submit(list(map(one, files)), errors="return").result()).to(device)


def _decoded(
    decoder: Callable[[torch.device], Decode],
    finisher: Callable[[torch.device], Callable[[torch.Tensor], torch.Tensor]] = lambda device: _EVAL.v2(),
) -> Callable[[torch.device, Executor], Answer]:
    """A library that decodes, on a device the whole request at once, and what finishes each image."""

    def make(device: torch.device, pool: Executor) -> Answer:
        decode, finish = decoder(device), finisher(device)

        def answer(files: Sequence[bytes]) -> torch.Tensor:
            if device.type != "cpu":
                return torch.stack(list(map(finish, decode(files))))
            return torch.stack(list(pool.map(lambda data: finish(decode([data])[0]), files)))

        return answer

    return make


def encoded(data: bytes) -> torch.Tensor:
    """A file as a tensor, uint8 [bytes]."""
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def _torchvision(device: torch.device) -> Decode:
    return lambda files: decode_jpeg(list(map(encoded, files)), ImageReadMode.RGB, device=device)


def _torchcodec(device: torch.device) -> Decode:
    from torchcodec.decoders import decode_jpeg as decode

    return lambda files: decode(list(files), mode="RGB", device=device)


def _nvimagecodec(device: torch.device) -> Decode:
    from nvidia import nvimgcodec

    on_host, where = device.type == "cpu", device.index or 0
    how: dict[str, Any] = {}
    if on_host:
        where = nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY
        how = {"backends": [nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)], "max_num_cpu_threads": 1}
    parameters = nvimgcodec.DecodeParams(color_spec=nvimgcodec.ColorSpec.SRGB, apply_exif_orientation=False)

    @cache  # a thread has its own
    def decoder(thread: int) -> Any:
        return nvimgcodec.Decoder(device_id=where, options=":fancy_upsampling=1", **how)

    def decode(files: Sequence[bytes]) -> list[torch.Tensor]:
        images = decoder(get_ident()).decode(list(files), params=parameters)
        if on_host:
            return [planes(image.cpu()) for image in images]
        return [torch.as_tensor(image, device=device).permute(2, 0, 1) for image in images]

    return decode


def _by_hand(device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """torch's antialiased resize of uint8, and a normalisation in place."""
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (MEAN, STD))
    scale, shift = 1 / (255 * std), -mean / std

    def finish(picture: torch.Tensor) -> torch.Tensor:
        _, height, width = picture.shape
        cut: torch.Tensor = transformed(picture, _EVAL.draw((height, width)), _EVAL)
        return cut.float().mul_(scale).add_(shift)

    return finish


_SUBMITTED = "Image.open(BytesIO), transforms.Compose, accel.submit(images, errors='return'), torch.stack"
SERVERS = (
    Server(
        "torchvision v1, PIL",
        "Image.open(BytesIO), transforms.Compose on PIL images, a pool of threads",
        _in_threads,
        exact=True,
    ),
    Server(
        "torchvision v2, tensors",
        "torchvision.io.decode_jpeg, on the device if there is one; transforms.v2 on uint8 tensors",
        _decoded(_torchvision),
    ),
    Server("accel.submit, cpu", _SUBMITTED, _submitted, exact=True, backend="cpu"),
    Server("accel.submit, cuda", _SUBMITTED, _submitted, exact=True, backend="cuda"),
    Server(
        "accel.submit, cuda, the host decodes",
        f"decode='host'; {_SUBMITTED}",
        _submitted,
        exact=True,
        backend="cuda",
        options={"decode": "host"},
    ),
    Server(
        "TorchCodec + v2",
        "torchcodec.decoders.decode_jpeg, on the device if there is one; transforms.v2 on uint8 tensors",
        _decoded(_torchcodec),
        ("torchcodec.decoders",),
    ),
    Server(
        "nvImageCodec by hand",
        "Decoder(fancy_upsampling=1), without a device one (CPU_ONLY) of each thread; torch's antialiased uint8 resize",
        _decoded(_nvimagecodec, _by_hand),
        ("nvidia.nvimgcodec",),
    ),
)
