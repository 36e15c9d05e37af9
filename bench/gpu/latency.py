"""Measuring latency: from the bytes of 1, 8 or 32 photos in memory to their tensor on the device, one request after the
other, as a server answers them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

import accel
from accel.cli.error_stats import ANOTHER_PICTURE, ErrorStats
from accel.cli.harness import compare
from accel.cli.pipelines import PIPELINES as OWN_PIPELINES
from bench.gpu.setting import NotInstalled, Setting, Step, wait
from bench.measure import levels
from bench.pipelines import MEAN, PIPELINES, STD

SIZES = (1, 8, 32)
LEAST, MOST, WARM = 20, 500, 5  # requests that are measured, and not measured before

Answer = Callable[[Sequence[bytes]], torch.Tensor]
"""A function of files that returns float32 [images, 3, 224, 224] on the device."""


def measure(setting: Setting) -> Iterator[Step]:
    """Every contestant's median and 99th percentile, in milliseconds, for each size of requests."""
    device = str(setting.device)
    for name, backend, options in (
        ("accel", "cuda", {"device": device}),
        ("accel, the host decodes", "cuda", {"device": device, "decode": "host"}),
        ("accel, cpu", "cpu", {}),
        ("torchvision", "torchvision", {}),
    ):
        within = partial(accel.image_backend, backend, **options)
        yield name, partial(_requests, setting, partial(_scripted, setting.device), within, exact=True)
    yield "torchvision on the device", partial(_requests, setting, partial(_by_nvjpeg, setting.device))
    yield "TorchCodec on the device", partial(_needing, "torchcodec", setting, _torchcodec)
    yield "nvImageCodec", partial(_needing, "nvidia.nvimgcodec", setting, _nvimgcodec)


def _requests(
    setting: Setting,
    answer: Answer,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
    exact: bool = False,
) -> dict[str, Any]:
    """Compare each size's first answer with torchvision's, and time requests for other photos.

    Raises:
        Different: an answer is not torchvision's, or not near it where ``exact`` is false.
    """
    found: dict[str, Any] = {}
    for size in SIZES:
        stats = None if exact else ErrorStats(levels(PIPELINES["eval"]), ANOTHER_PICTURE)
        files = cycle([photo.data for photo in setting.photos])
        first = list(islice(files, size))
        wanted = _scripted(torch.device("cpu"), first)
        with within():
            compare(wanted, answer(first).cpu(), [""] * size, stats)
            times = _timed(setting, answer, lambda files=files, size=size: list(islice(files, size)))  # type: ignore[misc]
        found[f"p50, ms, {size}"], found[f"p99, ms, {size}"] = (1000 * np.quantile(times, (0.5, 0.99))).tolist()
        found[f"requests, {size}"] = len(times)
    return found


def _timed(setting: Setting, answer: Answer, request: Callable[[], list[bytes]]) -> list[float]:
    times: list[float] = []
    ends = time.perf_counter() + setting.seconds / len(SIZES)
    while len(times) < WARM + LEAST or (len(times) < WARM + MOST and time.perf_counter() < ends):
        files = request()
        begin = time.perf_counter()
        answer(files)
        wait(setting.device)
        times.append(time.perf_counter() - begin)
    return times[WARM:]


def _scripted(device: torch.device, files: Sequence[bytes]) -> torch.Tensor:
    """torchvision's evaluation pipeline, as a server's script has it; submitted, where a backend computes ahead."""
    transform = OWN_PIPELINES["eval"]()
    batch = torch.stack([transform(Image.open(BytesIO(data)).convert("RGB")) for data in files])
    if accel.get_image_backend() == "cuda":
        return accel.submit(batch).result()  # type: ignore[no-any-return]
    return batch.to(device)


_REST = v2.Compose([v2.Resize(256), v2.CenterCrop(224), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])


def _by_nvjpeg(device: torch.device, files: Sequence[bytes]) -> torch.Tensor:
    return torch.stack([_REST(each) for each in decode_jpeg(_as_tensors(files), ImageReadMode.RGB, device=device)])


def _needing(module: str, setting: Setting, make: Callable[[torch.device], Answer]) -> dict[str, Any]:
    """Measure another library.

    Raises:
        NotInstalled: it is missing.
    """
    if find_spec(module.partition(".")[0]) is None or find_spec(module) is None:
        raise NotInstalled(module)
    return _requests(setting, make(setting.device))


def _torchcodec(device: torch.device) -> Answer:
    from torchcodec.decoders import decode_jpeg as decode

    return lambda files: torch.stack([_REST(each) for each in decode(_as_tensors(files), mode="RGB", device=device)])


def _nvimgcodec(device: torch.device) -> Answer:
    """nvImageCodec's decoder, on the host where there is no device."""
    from nvidia import nvimgcodec

    on_host = device.type == "cpu"
    how = {"backends": [nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)]} if on_host else {}
    decoder = nvimgcodec.Decoder(
        device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY if on_host else device.index or 0, **how
    )

    def answer(files: Sequence[bytes]) -> torch.Tensor:
        pictures = [each.cpu() if on_host else each for each in decoder.decode(list(files))]
        tensors = [torch.as_tensor(np.asarray(each) if on_host else each) for each in pictures]
        return torch.stack([_REST(each.permute(2, 0, 1).to(device)) for each in tensors])

    return answer


def _as_tensors(files: Sequence[bytes]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.frombuffer(data, np.uint8).copy()) for data in files]
