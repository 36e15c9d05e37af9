"""Measuring latency: from the bytes of 1, 8 or 32 photos in memory to their tensor on the device, one request after the
other, as a server answers them. ``bench.serving`` measures the same contestants in turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from bench.contestants.contestant import missing
from bench.contestants.servers import SERVERS, SIZES, Answer, Server, requests
from bench.gpu.setting import NotInstalled, Setting, Step, seconds

LEAST, MOST, WARM = 20, 500, 5  # requests that are measured, and not measured before


def measure(setting: Setting) -> Iterator[Step]:
    """Every contestant's median and 99th percentile, in milliseconds, for each size of requests."""
    for server in SERVERS:
        yield server.title, partial(_requests, setting, server)


def _requests(setting: Setting, server: Server) -> dict[str, Any]:
    """Compare each size's first answer with torchvision's, and time requests.

    Raises:
        NotInstalled: a module that it needs is missing, or cannot be loaded.
        Different: an answer is not as promised.
    """
    if (reason := missing(server.modules)) is not None:
        raise NotInstalled(reason.removeprefix("not installed: "))
    found, files = dict[str, Any](), [photo.data for photo in setting.photos]
    with server.opened(setting.device) as answer:
        for size in SIZES:
            asked = requests(files, size)
            server.check(answer, setting.device, next(asked))
            with server.in_force(setting.device):
                times = _timed(setting, answer, asked)
            found[f"p50, ms, {size}"], found[f"p99, ms, {size}"] = (1000 * np.quantile(times, (0.5, 0.99))).tolist()
            found[f"requests, {size}"] = len(times)
    return found


def _timed(setting: Setting, answer: Answer, asked: Iterator[list[bytes]]) -> list[float]:
    times, ends = list[float](), time.perf_counter() + setting.seconds / len(SIZES)
    while len(times) < WARM + LEAST or (len(times) < WARM + MOST and time.perf_counter() < ends):
        times.append(seconds(partial(answer, next(asked)), setting.device))
    return times[WARM:]
