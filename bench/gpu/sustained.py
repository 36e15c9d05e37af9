"""Measuring many batches in succession on the device without waiting: images per second, and the load of each part.

Of accel: recipes in memory, planned and launched by its threads, and an unchanged DataLoader; of others: ``peers.py``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

import accel
from accel.cli.costs import cpu_seconds
from accel.cli.data import open_folder
from accel.cli.error_stats import ANOTHER_PICTURE, ErrorStats
from accel.cli.harness import compare
from accel.cli.pipelines import PIPELINES as OWN_PIPELINES
from accel.planning.plan import plan
from accel.runtime import prefetch, streams
from bench.gpu.peers import NEED_DRIVER, PEERS, Batches
from bench.gpu.setting import (
    NVIMGCODEC,
    NotInstalled,
    Setting,
    Step,
    batch,
    launches,
    need_nvimgcodec,
    recorded,
    standing_still,
    wait,
)
from bench.measure import check_likely, levels
from bench.pipelines import PIPELINES

WORKERS = (8, 4, 12)
OPTIONS: dict[str, dict[str, Any]] = {"accel": {}, "accel, nvImageCodec": NVIMGCODEC}
WATCHED = 0.15  # the part of the seconds before that is not measured, and after it in which every launch is


def measure(setting: Setting) -> Iterator[Step]:
    """Yield a step for every contestant: accel, others on the device, and last the host."""
    for name, options in OPTIONS.items():
        yield f"{name}, recipes in memory", partial(_in_memory, setting, options)
    for workers in WORKERS:
        yield f"accel, DataLoader, {workers} workers", partial(_loader, setting, workers, "cuda")
    for name in PEERS:
        yield name, partial(_peer, setting, name)
    yield f"torchvision, DataLoader, {max(WORKERS)} workers", partial(_loader, setting, max(WORKERS), "torchvision")


# -- contestants --------------------------------------------------------------------------------------------


def _in_memory(setting: Setting, options: dict[str, Any]) -> dict[str, Any]:
    """Measure accel on recipes in memory.

    Raises:
        Different: exact values are not torchvision's.
    """
    need_nvimgcodec(options)
    backend, recipes = recorded(setting.photos, setting.device, **options)
    stats = None if options.get("exact", True) else ErrorStats(levels(PIPELINES["train"]))
    wanted = batch(setting.photos)

    def launched() -> tuple[torch.Tensor, Any]:
        return streams.aside(setting.device, lambda: backend.run_on(plan(recipes), setting.device))

    def batches() -> Batches:
        threads = prefetch._LAUNCHERS
        with ThreadPoolExecutor(threads) as pool:
            queued: deque[Future[Any]] = deque(pool.submit(launched) for _ in range(threads + 1))
            while True:
                result = queued.popleft().result()
                queued.append(pool.submit(launched))
                yield streams.arrive(*result)

    def check(found: torch.Tensor) -> None:
        compare(wanted, found, [photo.name for photo in setting.photos], stats)

    found = watched(setting, batches(), check, events=True)
    return {**found, "launchers": prefetch._LAUNCHERS, **(stats.as_data() if stats else {})}


def _loader(setting: Setting, workers: int, backend: str) -> dict[str, Any]:
    """Measure an unchanged DataLoader.

    Raises:
        Different: the first batch is not torchvision's of the same seed.
    """
    data = open_folder(setting.folder, OWN_PIPELINES["train"]()).dataset
    on_gpu, size = setting.device.type == "cuda", len(setting.photos)

    def batches(backend: str) -> Batches:
        options = {"device": str(setting.device)} if backend == "cuda" else {}
        with accel.image_backend(backend, **options):
            torch.manual_seed(0)
            endless = RandomSampler(data, replacement=True, num_samples=1 << 40)
            for images, _ in DataLoader(data, size, sampler=endless, num_workers=workers, pin_memory=on_gpu):
                yield images.to(setting.device, non_blocking=True)

    with closing(batches("torchvision")) as plain:
        wanted = next(plain).cpu()
    found = watched(setting, batches(backend), lambda first: compare(wanted, first, [""]), events=backend == "cuda")
    return {**found, "workers": workers}


def _peer(setting: Setting, name: str) -> dict[str, Any]:
    """Measure another library.

    Raises:
        NotInstalled: a module that it needs is missing.
        Different: its values are far from torchvision's.
    """
    make, modules, own_draws = PEERS[name]
    for module in modules:
        if find_spec(module.split(".")[0]) is None or find_spec(module) is None:
            raise NotInstalled(module)
    if make in NEED_DRIVER and setting.device.type == "cpu":
        raise NotInstalled("a driver, for which it asks on the host as well")
    wanted, stats = batch(setting.photos), ErrorStats(levels(PIPELINES["train"]), ANOTHER_PICTURE)
    check = partial(check_likely, wanted) if own_draws else partial(_near, wanted, stats)
    return {**watched(setting, make(setting), check), **({"own draws": True} if own_draws else stats.as_data())}


def _near(wanted: torch.Tensor, stats: ErrorStats, found: torch.Tensor) -> None:
    compare(wanted, found, [""] * len(wanted), stats)


# -- what is measured ---------------------------------------------------------------------------------------


def watched(
    setting: Setting, batches: Batches, check: Callable[[torch.Tensor], object], events: bool = False
) -> dict[str, Any]:
    """Check the first batch, then take batches, of which the first ones are not measured.

    Args:
        events: whether the kernels are accel's, so that afterwards, for a shorter time, each launch is timed by events.
    """
    with closing(batches):
        check(next(batches).cpu())
        _take(setting, batches, WATCHED)
        begin, main, all_of_them = time.perf_counter(), time.process_time(), cpu_seconds()
        images, looks = _take(setting, batches, 1)
        took = time.perf_counter() - begin
        main, all_of_them = time.process_time() - main, cpu_seconds() - all_of_them
        found: dict[str, Any] = {"images/s": images / took, "seconds": took, "images": images}
        found |= {"main, CPU s a s": main / took, "workers, CPU s a s": max(all_of_them - main, 0.0) / took}
        found |= {f"{name}, share of time by NVML": sum(each) / len(each) for name, each in looks.items()}
        if events:
            with launches(setting.device) as spans:
                _take(setting, batches, WATCHED)
            found["share of time without a kernel"] = standing_still([span for _, span in spans])
    return found


def _take(setting: Setting, batches: Batches, part: float) -> tuple[int, dict[str, list[float]]]:
    """Take batches for a part of the setting's seconds, at least one; return the images, and NVML's readings."""
    begin, images, looks = time.perf_counter(), 0, dict[str, list[float]]()
    for made in batches:
        images += len(made)
        passed = time.perf_counter() - begin
        if passed > part * setting.seconds:
            break
        if 5 * passed > len(looks.get("kernels", ())) + 1:  # five times a second
            for name, share in _utilisation(setting.device).items():
                looks.setdefault(name, []).append(share)
    wait(setting.device)
    return images, looks


def _utilisation(device: torch.device) -> dict[str, float]:
    """The recent utilisation of the kernels and of the engines for JPEG files, as shares, if NVML tells."""
    found: dict[str, float] = {}
    with suppress(Exception):  # not installed, no such device, or not supported by it
        nvml, handle = _nvml(device)
        found["kernels"] = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        found["JPEG engines"] = nvml.nvmlDeviceGetJpgUtilization(handle)[0] / 100
    return found


@cache
def _nvml(device: torch.device) -> tuple[Any, Any]:
    nvml = import_module("pynvml")
    nvml.nvmlInit()
    return nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
