"""What ``threads="auto"`` brings in DataLoader workers, beside every fixed number of threads.

    python -m bench.tune [--data DIR] [--images N] [--rounds N] [--out FILE]

- Simulated cores, 16 and 64: an image sleeps for 8 ms while it holds one of so many places. For some numbers of
  workers, and a training that takes batches at once or one every 80 ms, the rate is compared with the best of the fixed
  numbers of threads, each tried in turn. The first 20 batches do not count.
- A simulated device beside them, which takes 1 or 2 ms an image: the rate with ``placement="auto"``, with "device",
  and of the host alone. No GPU has measured it.
- Bursts, beside 8 simulated cores: reading blocks for 0.2 s of each second, as storage on a network may. The rate of
  batches of 16, with as many under way as accel finds, and as a ``prefetch_factor`` of 2 and of 8 has; and the first
  batches of a run that begins with what an earlier one found, beside those of one that does not.
- Real cores, two: epochs of photos from ``ImageFolder`` and from a dataset of one's own, by one worker with
  ``threads="auto"``, by one with one thread, and by two. Their values are compared first, with torchvision's too. CPU
  time is that of the workers.
- What it costs there: what is measured of a batch, beside the batch on one thread; the CPU time of a worker that waits;
  the seconds of a step that computes and takes four times as long as a batch on one thread.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from itertools import chain, repeat
from multiprocessing import active_children, get_context
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel import backend
from accel.backend import AcceleratorBackend, AcceleratorOptions
from accel.backends.cpu.backend import CpuBackend
from accel.cli import screen
from accel.cli.arguments import command
from accel.cli.tables import Table, show
from accel.hooks import prefetching, tv_files
from accel.planning.plan import Plan
from accel.processes.launch import environment
from accel.system import cores, memory, worker_threads
from bench.epochs import alike, photos
from bench.machine import parser, write
from bench.pipelines import MEAN, STD
from bench.usage import pinned

_BATCH, _WARM, _MEASURED = 64, 20, 12
_SLEEP, _STEP = 0.008, 0.08  # seconds of an image, and between two batches that are taken
_WORKERS, _EPOCHS = (1, 2, 3, 5, 8), 8
_TUNED = "raised", "again"  # a script's first run, and the next
_STALL, _FEW, _BURSTS = 0.2, 16, 400  # seconds, images of a batch, and batches
_TRAIN = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])


class Own(Dataset[Any]):
    """A dataset of one's own: the images of ``ImageFolder``'s, one by one."""

    def __init__(self, root: str) -> None:
        self.samples = ImageFolder(root).samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return _TRAIN(Image.open(path).convert("RGB")), label


class Many(Dataset[Any]):
    """An image again and again, opened and cropped at random."""

    def __init__(self, path: str, count: int) -> None:
        self.path, self.count = path, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, _: int) -> Any:
        return _TRAIN(Image.open(self.path).convert("RGB"))


# -- simulated cores ----------------------------------------------------------------------------------------


@contextmanager
def simulated(count: int) -> Iterator[None]:
    """Have this process and its forked children see so many cores, and compute by sleeping on one of them."""
    places = get_context("fork").Semaphore(count)

    def sleep() -> None:
        with places:
            time.sleep(_SLEEP)

    def tasks(_: Any, plan: Any, __: Any) -> Iterator[Any]:
        return ((position, sleep) for position in range(plan.shape[0]))

    with ExitStack() as patched:
        patched.enter_context(patch.object(CpuBackend, "_tasks", tasks))
        patched.enter_context(patch.object(cores, "affinity", lambda process=0: count))
        patched.enter_context(patch.object(cores, "machine", lambda: (count, None)))
        yield


def rate(path: str, workers: int, threads: int | str, step: float) -> tuple[float, int]:
    """Images a second after the first batches, and the number of threads of the last one."""
    with accel.image_backend("cpu", threads=threads, cache=None), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of more workers than this machine has cores
        loader = DataLoader(Many(path, _BATCH * (_WARM + _MEASURED)), _BATCH, num_workers=workers)
        before, begun, last = accel.stats()["worker threads"], 0.0, 0
        for number, _ in enumerate(loader):
            if number == _WARM:
                begun = time.perf_counter()
            now = accel.stats()["worker threads"]
            last = next((each for each in now if now[each] != before.get(each)), last)
            before = now
            time.sleep(step)
        return _BATCH * (_MEASURED - 1) / (time.perf_counter() - begun), last


def on_simulated(path: str, count: int, workers: int, step: float) -> dict[str, Any]:
    """The rate of "auto" beside the best of fixed numbers of threads."""
    share = worker_threads.share(count, workers)
    with simulated(count):
        grid = sorted({max(number, 1) for number in (share // 2, share, share + 1, 2 * share)})
        fixed = {number: rate(path, workers, number, step)[0] for number in grid}
        own, threads = rate(path, workers, "auto", step)
    best = max(fixed, key=lambda number: fixed[number])
    found = {"cores": count, "workers": workers, "step": step, "auto": own, "its threads": threads}
    return {**found, "fixed": fixed, "best threads": best, "auto by best": own / fixed[best]}


# -- bursts -------------------------------------------------------------------------------------------------


@contextmanager
def stalling() -> Iterator[None]:
    """Have this process and its forked children wait for files at the same times."""

    def opened(*args: Any) -> Any:
        left = 1 - time.monotonic() % 1
        time.sleep(left if left < _STALL else 0)
        return given(*args)

    given = tv_files.opened_together
    with patch.object(tv_files, "opened_together", opened):
        yield


def tunes(folder: str) -> AbstractContextManager[Any]:
    """Have what is found kept in a file of this folder."""
    return patch.dict(os.environ, {environment.TUNE_FILE: os.path.join(folder, "tuned")})


def in_bursts(folder: str, workers: int, rounds: int) -> dict[str, Any]:
    """Batches a second with as many under way as the script says, as accel finds, and as 8 a worker, in turns; and of
    the first third of an epoch, by a script that has not run yet, and by one that has."""
    dataset = ImageFolder(folder, _TRAIN)
    some = Subset(dataset, [number % len(dataset) for number in range(_FEW * _BURSTS)])
    own = tempfile.TemporaryDirectory()
    found = dict[str, list[float]](script=[], raised=[], again=[], eight=[])
    first = {which: list[float]() for which in found}
    for which, rates in chain.from_iterable(repeat(tuple(found.items()), rounds)):
        most = patch.object(prefetching, "MOST", prefetching.MOST if which in _TUNED else 0)
        own = tempfile.TemporaryDirectory() if which != "again" else own
        with (
            simulated(8),
            stalling(),
            most,
            tunes(own.name),
            accel.image_backend("cpu", cache=None),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # torch's, of more workers than this machine has cores
            loader = DataLoader(some, _FEW, num_workers=workers, prefetch_factor=8 if which == "eight" else 2)
            for number, _ in enumerate(loader):
                if number == 0:
                    begun = time.perf_counter()
                elif number == _BURSTS // 3:
                    first[which].append(number / (time.perf_counter() - begun))
                    begun = time.perf_counter()
                time.sleep(_STEP / 4)
            rates.append((_BURSTS - _BURSTS // 3 - 1) / (time.perf_counter() - begun))
    medians = {which: median(rates) for which, rates in found.items()}
    gains = {f"first batches, {which} by script": median(first[which]) / median(first["script"]) for which in _TUNED}
    return {"workers": workers, **medians, "raised by script": medians["raised"] / medians["script"], **gains}


# -- a simulated device -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClockOptions(AcceleratorOptions):
    seconds: float = 0.0
    """What an image takes."""


class Clock(AcceleratorBackend):
    """An accelerator that takes a time for its images; their values are not computed."""

    Options = ClockOptions
    options: ClockOptions
    devices = ("cpu",)

    def run_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        time.sleep(plan.shape[0] * self.options.seconds)
        return plan.empty(memory.results.empty)


def on_clock(path: str, count: int, workers: int, seconds: float) -> dict[str, Any]:
    """Rates of a device, of the host, and of both together."""
    entry = EntryPoint("clock", "bench.tune:Clock", backend.GROUP)
    found = dict[str, float]()
    with simulated(count), patch.object(backend, "entry_points", lambda group: (*entry_points(group=group), entry)):
        found["host"] = rate(path, workers, "auto", 0.0)[0]
        for placement in ("device", "auto"):
            options = {"device": "cpu", "seconds": seconds, "placement": placement, "cache": None}
            with accel.image_backend("clock", **options), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's, of more workers than this machine has cores
                warm = _WARM + 2 * worker_threads.LOOKED_AT * workers
                loader = DataLoader(Many(path, _BATCH * (warm + 3 * _MEASURED)), _BATCH, num_workers=workers)
                for number, images in enumerate(loader):
                    if number == warm:
                        begun = time.perf_counter()
                    images.to("cpu")
                found[placement] = _BATCH * (3 * _MEASURED - 1) / (time.perf_counter() - begun)
    ratios = {
        "auto by device": found["auto"] / found["device"],
        "auto by both": found["auto"] / (found["device"] + found["host"]),
    }
    return {"cores": count, "workers": workers, "ms an image": 1000 * seconds, **found, **ratios}


# -- real cores ---------------------------------------------------------------------------------------------


def epoch(
    make: Any, workers: int, threads: int | str, seed: int, backend: str = "cpu", stride: int = 16
) -> tuple[list[float], int]:
    """Images a second, milliseconds of CPU time an image, and a digest; the first epoch starts the workers.

    The digest is of one row and column in ``stride``: workers compute on while all of a batch is read.
    """
    torch.manual_seed(seed)
    with accel.image_backend(backend, **({"threads": threads} if backend == "cpu" else {})):
        dataset = make()
        loader = DataLoader(dataset, _BATCH, shuffle=True, num_workers=workers, persistent_workers=True)
        for _ in loader:
            pass
        digests, begun = list[Any](), time.perf_counter()
        for images, labels in chain.from_iterable(repeat(loader, _EPOCHS)):
            digests += zlib.crc32(images[..., ::stride, ::stride].contiguous().numpy().data), *labels.tolist()
        seconds = time.perf_counter() - begun
        before = sum(os.times()[2:4])
        del loader
        cpu = sum(os.times()[2:4]) - before  # of the workers, which have ended
    images, all_images = _EPOCHS * len(dataset), (_EPOCHS + 1) * len(dataset)
    return [images / seconds, 1000 * cpu / all_images], hash(tuple(digests))


def on_real(make: Any, rounds: int) -> dict[str, Any]:
    """Rates, CPU times and ratios of one worker with "auto", with one thread, and of two workers, in turns."""
    one, auto = partial(epoch, make, 1, 1), partial(epoch, make, 1, "auto")
    which = {"one": partial(one, 0), "auto": partial(auto, 0), "torchvision": partial(one, 0, "torchvision")}
    alike("tune", {name: partial(run, stride=1) for name, run in which.items()})
    found = []
    for number in range(rounds):
        costs = alike("tune", {"auto": partial(auto, number), "one thread": partial(one, number)}, turn=number)
        costs["two workers"], _ = epoch(make, 2, 1, number)
        rates = {which: cost[0] for which, cost in costs.items()}
        cpu = {f"{which}, CPU ms": cost[1] for which, cost in costs.items()}
        ratios = {f"auto by {which}": rates["auto"] / rates[which] for which in ("one thread", "two workers")}
        found.append({**rates, **cpu, **ratios})
    return {"medians": {key: median(each[key] for each in found) for key in found[0]}, "rounds": found}


def costs(make: Any, rate: float, rounds: int) -> dict[str, float]:
    """Shares of a batch, at so many images a second on one thread, and of a core; ratios of steps."""
    with patch.object(worker_threads, "_most", lambda: 1):
        own, begun = worker_threads.WorkerThreads(), time.perf_counter()
    for _ in range(2000):
        with own.batch(), own.sharing(1):
            pass
    found = {"controller by a batch": (time.perf_counter() - begun) / 2000 * rate / _BATCH}
    square = torch.rand(1000, 1000)
    begun = time.perf_counter()
    for _ in range(20):
        square @ square
    products = max(round(4 * _BATCH / rate / ((time.perf_counter() - begun) / 20)), 1)
    steps: dict[int | str, list[float]] = {1: [], "auto": []}
    for threads in (*steps, *reversed(steps)) * rounds:
        with accel.image_backend("cpu", threads=threads):
            loader: Any = DataLoader(make(), _BATCH, num_workers=1, persistent_workers=True)
            for number, _ in enumerate(chain.from_iterable(repeat(loader, _EPOCHS))):
                begun = time.perf_counter()
                for _ in range(products):
                    square @ square
                if number >= worker_threads.LOOKED_AT:
                    steps[threads].append(time.perf_counter() - begun)
    found["step, auto by one thread"] = median(steps["auto"]) / median(steps[1])
    with accel.image_backend("cpu"):
        loader = iter(DataLoader(make(), _BATCH, num_workers=1))
        next(loader)
        time.sleep(1)
        (worker,) = active_children()
        before = _ticks(worker.pid)
        time.sleep(5)
        found["cores of a worker that waits"] = (_ticks(worker.pid) - before) / os.sysconf("SC_CLK_TCK") / 5
    return found


def _ticks(process: int | None) -> int:
    """The CPU time of a process."""
    return sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))


@command("tune")
def main() -> int:
    options = parser("bench.tune", str(__doc__).partition("\n")[0], out="tune.json", images=800, rounds=5)
    args = options.parse_args()
    kinds = {"ImageFolder": lambda root: ImageFolder(root, _TRAIN), "a dataset of one's own": Own}
    with ExitStack() as entered:
        given = entered.enter_context(photos(args.data, args.images))
        bar = entered.enter_context(screen.Bar("tune", 4 + 4 * len(_WORKERS)))
        entered.enter_context(tunes(entered.enter_context(tempfile.TemporaryDirectory())))
        simulations = []
        for count in (16, 64):
            for workers in _WORKERS:
                for step in (0.0, _STEP):
                    simulations.append(on_simulated(given.files[0], count, workers, step))
                    bar.advance()
        device = [on_clock(given.files[0], 16, workers, each) for workers in (2, 4) for each in (0.001, 0.002)]
        bar.advance()
        bursts = [in_bursts(str(given.root), workers, args.rounds) for workers in (2, 4)]
        bar.advance()
        real = dict[str, Any]()
        with pinned(2):
            for name, make in kinds.items():
                real[name] = on_real(partial(make, str(given.root)), args.rounds)
                bar.advance()
            one_thread = real["ImageFolder"]["medians"]["one thread"]
            shares = costs(partial(kinds["ImageFolder"], str(given.root)), one_thread, args.rounds)
    columns = "cores", "workers", "step", "its threads", "best threads", "auto", "auto by best"
    show(Table("simulated cores", columns, [[f"{each[name]:.5g}" for name in columns] for each in simulations]))
    show(
        Table("a simulated device", tuple(device[0]), [[f"{value:.5g}" for value in each.values()] for each in device])
    )
    show(Table("bursts", tuple(bursts[0]), [[f"{value:.5g}" for value in each.values()] for each in bursts]))
    names = next(iter(real.values()))["medians"]
    rows = [[key, *(f"{each['medians'][key]:,.3f}" for each in real.values())] for key in names]
    show(Table("two cores", ("", *real), rows))
    show(Table("costs", ("", "share"), [[name, f"{share:.4f}"] for name, share in shares.items()]))
    found = {"simulated": simulations, "device": device, "bursts": bursts, "real": real, "costs": shares}
    write(args.out, {"load": os.getloadavg(), "batch": _BATCH, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
