"""Measuring many batches in succession on the device without waiting: images per second, and the load of each part.

Of accel: recipes in memory, planned and launched by its threads, and an unchanged DataLoader; of others: ``peers.py``.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

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
from accel.system import counters
from bench.gpu.peers import NEED_DRIVER, PEERS, Batches
from bench.gpu.setting import (
    NotInstalled,
    Setting,
    Step,
    batch,
    launches,
    recorded,
    standing_still,
    wait,
)
from bench.measure import check_likely, levels
from bench.pipelines import PIPELINES

WATCHED = 0.15  # the part of the seconds before that is not measured, and after it in which every launch is
WARM, WARM_MOST = 1.0, 10.0  # seconds that are not measured, at least and at most
INDEXED = 3  # images taken before measuring, of each distinct file, if time suffices: most have their indexes then

Use = Callable[[torch.Tensor, torch.device], torch.Tensor]


def _sent(images: torch.Tensor, device: torch.device) -> torch.Tensor:
    return images.to(device, non_blocking=True)


class Loader(NamedTuple):
    """An unchanged DataLoader, and the use of its batches.

    Attributes:
        batch: images; None for the setting's. copies: distinct files, each a copy of a photo; 0 for the photos.
        use: what the loop does with a batch, which is on the device thereafter.
    """

    workers: int = 8
    backend: str = "cuda"
    options: dict[str, Any] = {}  # noqa: RUF012
    batch: int | None = None
    copies: int = 0
    use: Use = _sent


def _channels_last(images: torch.Tensor, device: torch.device) -> torch.Tensor:
    return images.to(device, memory_format=torch.channels_last, non_blocking=True)


LOADERS = {
    "accel, DataLoader, 8 workers": Loader(),
    "accel, DataLoader, 4 workers": Loader(4),
    "accel, DataLoader, 12 workers": Loader(12),
    **{f"accel, prefetch={depth}": Loader(options={"prefetch": depth}) for depth in (2, 3, 4, 6)},
    **{f"accel, batches of {batch}": Loader(batch=batch) for batch in (64, 128, 256, 1024)},
    "accel, channels_last": Loader(use=_channels_last),
    "accel, half": Loader(use=lambda images, device: images.to(device, non_blocking=True).half()),
    "accel, half, before it is sent": Loader(use=lambda images, device: images.half().to(device, non_blocking=True)),
    "accel, 20,000 files": Loader(copies=20_000),
    "accel, dali, exact=False": Loader(backend="dali", options={"exact": False}),
    "torchvision, DataLoader, 12 workers": Loader(12, "torchvision"),
}


def measure(setting: Setting) -> Iterator[Step]:
    """Yield a step for every contestant."""
    for name, loader in LOADERS.items():
        yield name, partial(loaded, setting, loader)
    yield "accel, recipes in memory", partial(_in_memory, setting)
    for name in PEERS:
        yield name, partial(_peer, setting, name)


# -- contestants --------------------------------------------------------------------------------------------


def _in_memory(setting: Setting) -> dict[str, Any]:
    """Measure accel on recipes in memory.

    Raises:
        Different: the values are not torchvision's.
    """
    backend, recipes = recorded(setting.photos, setting.device)
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
        compare(wanted, found, [photo.name for photo in setting.photos], None)

    return {**watched(setting, batches(), check, events=True), "launchers": prefetch._LAUNCHERS}


def loaded(setting: Setting, loader: Loader, begin: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Measure an unchanged DataLoader; ``begin`` is called before its first batch is measured.

    Raises:
        NotInstalled: DALI is missing.
        Different: the first batch is not torchvision's of the same seed or, by DALI's operators, not near it.
    """
    if loader.backend == "dali" and find_spec("nvidia.dali") is None:
        raise NotInstalled("nvidia.dali")
    with _copies(setting, loader.copies) as folder:
        size = loader.batch or len(setting.photos)
        wanted = loader.use(_reference(folder, size), torch.device("cpu"))
        stats = None
        if not loader.options.get("exact", True):
            stats = ErrorStats(levels(PIPELINES["train"]), ANOTHER_PICTURE)
        before = Counter({name: accel.stats()[name] for name in _COUNTED})
        batches = _batches(setting, loader, folder, size)

        def check(first: torch.Tensor) -> None:
            compare(wanted, first, [""] * len(wanted), stats)
            begin()

        found = watched(setting, batches, check, loader.backend == "cuda", INDEXED * loader.copies)
    after = {name: accel.stats()[name] - before[name] for name in _COUNTED}
    shares = {name: after[name] / after["images"] for name in _COUNTED[1:] if after["images"]}
    return {**found, "workers": loader.workers, "batch": size, "shares": shares, **(stats.as_data() if stats else {})}


_COUNTED = (counters.IMAGES, counters.INDEXED, counters.IN_PLACE)


def _batches(setting: Setting, loader: Loader, folder: Path, size: int) -> Batches:
    options = {} if loader.backend == "torchvision" else {"device": str(setting.device), **loader.options}
    with accel.image_backend(loader.backend, **options):
        for images, _ in _data_loader(folder, size, loader.workers, setting.device.type == "cuda"):
            yield loader.use(images, setting.device)


def _data_loader(folder: Path, size: int, workers: int, pins: bool) -> DataLoader[Any]:
    torch.manual_seed(0)
    data = open_folder(folder, OWN_PIPELINES["train"]()).dataset
    endless = RandomSampler(data, replacement=True, num_samples=1 << 40)
    return DataLoader(data, size, sampler=endless, num_workers=workers, pin_memory=pins)


@cache
def _reference(folder: Path, size: int) -> torch.Tensor:
    """torchvision's first batch, which is the first worker's, however many there are."""
    with accel.image_backend("torchvision"):
        batches = iter(_data_loader(folder, size, 1, False))
        return next(batches)[0]  # type: ignore[no-any-return]


@contextmanager
def _copies(setting: Setting, count: int) -> Iterator[Path]:
    """A folder of so many copies of the photos, old enough to be indexed at once; the photos' own for none."""
    if not count:
        yield setting.folder
        return
    with TemporaryDirectory(prefix="accel-") as made:
        for number in range(count):
            photo = setting.photos[number % len(setting.photos)]
            (Path(made) / f"{number:06}.jpg").write_bytes(photo.data)
        time.sleep(2.1)
        yield Path(made)


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
    near = partial(compare, wanted, names=[""] * len(wanted), stats=stats)
    check = partial(check_likely, wanted) if own_draws else near
    return {**watched(setting, make(setting), check), **({"own draws": True} if own_draws else stats.as_data())}


# -- what is measured ---------------------------------------------------------------------------------------


def watched(
    setting: Setting,
    batches: Batches,
    check: Callable[[torch.Tensor], object],
    events: bool = False,
    least: int = 0,
) -> dict[str, Any]:
    """Check the first batch, then take batches, of which the first ones are not measured.

    Args:
        events: whether the kernels are accel's, so that afterwards, for a shorter time, each launch is timed by events.
        least: images that are taken before measuring.
    """
    with closing(batches):
        check(next(batches).cpu())
        warm = max(WATCHED * setting.seconds, min(WARM, setting.seconds))
        _take(setting, batches, warm, least)
        if setting.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(setting.device)
        begin, main, all_of_them = time.perf_counter(), time.process_time(), cpu_seconds()
        images, looks = _take(setting, batches, setting.seconds)
        took = time.perf_counter() - begin
        main, all_of_them = time.process_time() - main, cpu_seconds() - all_of_them
        found: dict[str, Any] = {"images/s": images / took, "seconds": took, "images": images}
        found |= {"main, CPU s a s": main / took, "workers, CPU s a s": max(all_of_them - main, 0.0) / took}
        found |= {f"{name}, share of time by NVML": sum(each) / len(each) for name, each in looks.items()}
        found |= _memory(setting.device)
        if events:
            with launches(setting.device) as spans:
                _take(setting, batches, WATCHED * setting.seconds)
            found["share of time without a kernel"] = standing_still([span for _, span in spans])
    return found


def _memory(device: torch.device) -> dict[str, float]:
    """GB of the device's memory: the most that tensors had, what torch keeps, and what all processes have."""
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    names = {"peak": torch.cuda.max_memory_allocated(device), "kept by torch": torch.cuda.memory_reserved(device)}
    return {f"memory, GB, {name}": size / 1e9 for name, size in {**names, "of all": total - free}.items()}


def _take(setting: Setting, batches: Batches, seconds: float, least: int = 0) -> tuple[int, dict[str, list[float]]]:
    """Take batches for some seconds, and at least so many images; return the images, and NVML's readings."""
    begin, images, looks = time.perf_counter(), 0, dict[str, list[float]]()
    for made in batches:
        images += len(made)
        passed = time.perf_counter() - begin
        if passed > seconds and (images >= least or passed > WARM_MOST):
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
