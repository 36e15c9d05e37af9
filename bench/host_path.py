"""``python -m bench.host_path``: what the host does for a batch of the ``cuda`` backend, on a device that does nothing.

For each way in which batches come (from workers, without any, of bytes in memory), and each size: images a second that
are fed, and the main thread's CPU time to get a batch, and to plan it and queue it for the device. Then the CPU time of
a worker, beside opening, reading and closing the same files into shared memory. ``--against`` names another checkout,
which takes turns with this one.

Before, each way's values, computed on the host by the kernels, are compared with torchvision's. Exit status: 0
measured, 1 a value differs, 2 wrong usage.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, RandAugment

import accel
from accel.backends.cuda import jpeg
from accel.cli import screen
from accel.cli.arguments import Red, command
from accel.cli.costs import take_turns
from accel.cli.data import folder
from accel.cli.pipelines import PIPELINES
from accel.cli.tables import Table, show
from accel.codec.files import reader
from accel.runtime import compute
from accel.system import memory
from bench import machine, null_accelerator

SIZES = 64, 256, 512
_SECONDS, _WARM, _CHECKED = 1.5, 4, 5
_META = torch.device("meta")
Batches = Generator[Any, None, None]


class Own(Dataset[Any]):
    """A dataset of one's own: one image after another."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files, self.transform = files, PIPELINES["train"]()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return self.transform(Image.open(self.files[place]).convert("RGB")), 0


def _files(root: Path) -> list[str]:
    return sorted(map(str, root.glob("*/*")))


def _loaded(make: Callable[[Path], Any], workers: int, root: Path, size: int) -> Batches:
    data = make(root)
    endless = RandomSampler(data, replacement=True, num_samples=1 << 40)
    for images, _ in DataLoader(data, size, sampler=endless, num_workers=workers):
        yield images


def _folder(root: Path) -> ImageFolder:
    return ImageFolder(str(root), PIPELINES["train"]())


def _augmented(root: Path) -> ImageFolder:
    crop, flip, *values = PIPELINES["train"]().transforms
    return ImageFolder(str(root), Compose([crop, flip, RandAugment(), *values]))


def _in_memory(root: Path, size: int) -> Batches:
    files, transform = [Path(each).read_bytes() for each in _files(root)], PIPELINES["train"]()
    place = 0
    while True:
        some = [files[number % len(files)] for number in range(place, place + size)]
        place += size
        yield torch.stack([transform(accel.functional.decode(each).convert("RGB")) for each in some])


def _half(root: Path, size: int) -> Batches:
    for images in _loaded(_folder, 1, root, size):
        yield images.half().to(memory_format=torch.channels_last)


WAYS: dict[str, Callable[[Path, int], Batches]] = {
    "ImageFolder, 1 worker": partial(_loaded, _folder, 1),
    "dataset of one's own, 1 worker": partial(_loaded, lambda root: Own(_files(root)), 1),
    "ImageFolder, 1 worker, half and channels_last": _half,
    "ImageFolder with RandAugment, 1 worker": partial(_loaded, _augmented, 1),
    "ImageFolder, no workers": partial(_loaded, _folder, 0),
    "dataset of one's own, no workers": partial(_loaded, lambda root: Own(_files(root)), 0),
    "bytes in memory": _in_memory,
}


# -- in a process of each checkout ----------------------------------------------------------------------------


def _launched(root: Path, way: str, size: int) -> dict[str, float]:
    """Images a second, and the main thread's microseconds for an image: to get a batch, and to queue it."""
    with closing(WAYS[way](root, size)) as batches:
        got = queued = 0.0
        count, begin = -_WARM, 0.0
        while count <= 0 or time.perf_counter() - begin < _SECONDS:
            if count == 0:
                begin, got, queued = time.perf_counter(), 0.0, 0.0
            first = time.thread_time()
            lazy = next(batches).lazy
            second = time.thread_time()
            compute.tensors_on(_META, lazy.recipes, interleaved=lazy.layout.interleaved)
            got, queued, count = got + second - first, queued + time.thread_time() - second, count + 1
        images = count * size
        taken = time.perf_counter() - begin
    return {"images/s": images / taken, "got, us": 1e6 * got / images, "queued, us": 1e6 * queued / images}


def _in_worker(root: Path, size: int) -> dict[str, float]:
    """The CPU microseconds of a worker for an image, and of reading alone."""
    data, files, rng = _folder(root), _files(root), np.random.default_rng(0)
    rooms = [memory.shared((int(1.5 * size * max(map(os.path.getsize, files))),), torch.uint8) for _ in range(3)]

    def read() -> float:
        begin = time.thread_time()
        for room in rooms:
            paths = [files[place] for place in rng.integers(len(files), size=size)]
            reader.read_to(paths, room.data_ptr(), len(room), 1 << 40)
        return (time.thread_time() - begin) / (len(rooms) * size)

    endless = RandomSampler(data, replacement=True, num_samples=1 << 40)
    batches: Any = iter(DataLoader(data, size, sampler=endless, num_workers=1))
    worker = batches._workers[0].pid
    for _ in range(_WARM):
        next(batches), read()
    reads, whole, begin = list[float](), list[float](), time.perf_counter()
    while time.perf_counter() - begin < 2 * _SECONDS:
        used, count = _cpu(worker), 0
        until = time.perf_counter() + _SECONDS / 4
        while time.perf_counter() < until:
            next(batches)
            count += 1
        whole.append((_cpu(worker) - used) / (count * size))
        reads.append(read())
    batches._shutdown_workers()
    return {"worker, us": 1e6 * median(whole), "reading, us": 1e6 * median(reads)}


def _cpu(pid: int) -> float:
    """The seconds of CPU time of all threads of a process."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def _before_finished_work() -> None:
    """Have the decoder of a checkout that queued it by itself ask for no report, which the device cannot give."""
    decoder: Any = getattr(jpeg, "Decoder", None)
    if decoder is None:
        return
    names = vars(sys.modules[decoder.__module__]).copy()
    text = textwrap.dedent(inspect.getsource(decoder._queue))
    text = text.replace(
        "states[:size].copy_(scratch[first : first + size], non_blocking=True)", "states[:size].zero_()"
    )
    exec(f"from __future__ import annotations\n{text}", names)
    decoder._queue = names["_queue"]
    null: Any = null_accelerator._NullDevice
    scratch = null.scratch
    null.launch = lambda *_: None
    null.scratch = lambda self, size: scratch(self, size + 64)[64:]  # no address is null


def _serve(root: Path) -> None:
    _before_finished_work()
    with null_accelerator.installed(), accel.image_backend(null_accelerator.NAME, cache=None):
        for line in sys.stdin:
            kind, *rest = json.loads(line)
            found = _launched(root, *rest) if kind == "launched" else _in_worker(root, *rest)
            print(json.dumps(found), flush=True)


# -- turns ----------------------------------------------------------------------------------------------------


def _check(root: Path) -> None:
    for way, batches in WAYS.items():
        found = []
        for backend, options in (("torchvision", {}), ("cuda", {"device": "cpu", "cache": None})):
            with accel.image_backend(backend, **options), closing(batches(root, _CHECKED)) as own:
                torch.manual_seed(1)
                found.append([next(own).to("cpu") + 0 for _ in range(2)])
        if not all(map(torch.equal, *found)):
            raise Red(f"{way}: values differ from torchvision's; nothing is reported")


class _Checkout:
    """A process that measures in one checkout."""

    def __init__(self, path: Path, root: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(path)}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(root)]
        self._process = subprocess.Popen(
            command, cwd=path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, *asked: Any) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.communicate()


@command("bench.host_path")
def main() -> int:
    options = machine.parser("bench.host_path", str(__doc__).partition("\n")[0], out="host_path.json", rounds=3)
    options.add_argument("--against", type=Path, metavar="DIR", help="another checkout of accel, which takes turns")
    args = options.parse_args()
    checkouts = {"now": machine.ROOT, **({} if args.against is None else {"before": args.against.resolve()})}
    asked = [("launched", way, size) for way in WAYS for size in SIZES] + [("in a worker", size) for size in SIZES]
    with folder(args.data) as (data, name), TemporaryDirectory() as made:
        root = Path(made)
        (root / "photos").mkdir()
        for file in sorted(data.rglob("*.jp*g")):
            (root / "photos" / file.name).symlink_to(file.resolve())
        _check(root)
        running = {which: _Checkout(path, root) for which, path in checkouts.items()}
        turns = {
            (which, *each): (lambda _, own=own, each=each: own.measure(*each))
            for each in asked
            for which, own in running.items()
        }
        with screen.Bar("turns", args.rounds * len(turns)) as bar:
            taken = take_turns(turns, args.rounds, lambda turn: bar.advance())
        for own in running.values():
            own.close()
    found: dict[str, Any] = {which: {"ways": {}, "workers": {}} for which in checkouts}
    for (which, kind, *rest), rounds in taken.items():
        row = {key: median(each[key] for each in rounds) for key in rounds[0]} | {"rounds": rounds}
        if kind == "launched":
            found[which]["ways"].setdefault(rest[0], {})[str(rest[1])] = row
        else:
            above = median(each["worker, us"] - each["reading, us"] for each in rounds)
            found[which]["workers"][str(rest[0])] = {**row, "above reading, us": above}
    for which, own in found.items():
        rows = [
            (way, size, f"{row['images/s']:,.0f}", f"{row['got, us']:.1f}", f"{row['queued, us']:.2f}")
            for way, sizes in own["ways"].items()
            for size, row in sizes.items()
        ]
        show(Table(f"{which}: main thread, us an image", ("way", "batch", "images/s", "to get", "to queue"), rows))
        workers = [(size, *(f"{row[key]:.1f}" for key in list(row)[:2])) for size, row in own["workers"].items()]
        show(Table(f"{which}: a worker, CPU us an image", ("batch", "in all", "of it reading"), workers))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=args.against, capture_output=True, text=True, check=False)
    before = {} if args.against is None else {"before, commit": commit.stdout.strip()}
    machine.write(args.out, {"photos": name, **before, **found})
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        _serve(Path(sys.argv[2]))
    else:
        sys.exit(main())
