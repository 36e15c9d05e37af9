"""What a pack brings: listing, epochs, and epochs where opening a file takes 2 ms, beside a tree of files; packing.

    python -m bench.packs [--photos DIR] [--images N] [--files N] [--rounds N] [--out FILE]

First the tensors of pack, tree and torchvision are compared; so are the batches of every epoch that is measured. All is
in the page cache. In turns:

- Listing: ``ImageFolder`` of a tree of small files, 100 in a class, without accel, and of its pack, by a process that
  does not know it. Then with 2 ms for each folder that is read: ``os.scandir``, which ``os.walk`` calls, sleeps. That
  looking up a path may read folders, too, is not simulated.
- Epochs of training, shuffled, "cpu", one process and one thread, of photos and of files of 64 pixels: as files, and
  from the pack, whose shards are opened anew in every epoch. Then with 2 ms for each of them that is opened: compiled
  code calls libc by itself, so a library between the process and libc sleeps (``bottlenecks/slow_files.c``; Linux, with
  a C compiler).
- Packing by one process of the pool, and unpacking, all on one core. Verifying is reading all shards again, and making
  the index. CPU time does not count waiting for the disk.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.cli import samples, screen
from accel.cli.arguments import Red, WrongUsage, at_least, command
from accel.cli.costs import Clock, Cost
from accel.cli.data import folder
from accel.cli.tables import Table, show
from accel.codec.files import packs
from accel.packs import unpacking, writing
from accel.packs.sources import Silent
from accel.system import memory
from bench.bottlenecks.processes import slow_files
from bench.epochs import alike, modules_not_collected
from bench.machine import parser, write
from bench.pipelines import MEAN, STD
from bench.usage import pinned

_BATCH, _CLASS, _DELAY, _PAIRS = 64, 100, 0.002, 4
_SMALL, _PACKED = 2000, {"photos": 2000, "64 pixels": 6000}  # files of an epoch, and that are packed in a round
_scandir = os.scandir
_PAIR = "pack", "pack, slow"
_UNITS = {"epochs": "epochs, ms an image", "packing": "packing, files/s on one core", "listing": "listing"}
_CROPS = {"photos": 224, "64 pixels": 32}


def listing(roots: Mapping[str, Path], rounds: int) -> dict[str, Any]:
    """Seconds of ``ImageFolder(...)`` of a tree and of its pack, and ratios."""
    found = []
    runs = {which: partial(_listed, root) for which, root in roots.items()}
    for number in range(-1, rounds):  # the first one warms up
        warm = alike("listing", runs, turn=number)
        with patch("os.scandir", _slow_scandir):
            slow = alike("listing, slow folders", runs, turn=number)
        ratios = {"files by pack": warm["files"] / warm["pack"], "files by pack, slow": slow["files"] / slow["pack"]}
        found.append({**warm, **{f"{which}, slow": spent for which, spent in slow.items()}, **ratios})
    return summary(found[1:])


def _listed(root: Path) -> tuple[float, int]:
    forget()
    with accel.image_backend("cpu" if (root / ".nv-meta").exists() else "torchvision"):
        begin = time.perf_counter()
        dataset = ImageFolder(str(root))
        spent = time.perf_counter() - begin
    below = [path[len(str(root)) :] for path, _ in dataset.samples]
    return spent, hash((*below, *dataset.targets, *dataset.classes))


def _slow_scandir(*path: Any) -> Any:
    time.sleep(_DELAY)
    return _scandir(*path)


def forget() -> None:
    """Have this process know no pack, as one that was just started."""
    for descriptor in [each for _, pack in packs.known.values() for each in pack.descriptors if each >= 0]:
        os.close(descriptor)
    packs.known.clear()


def epochs(roots: Mapping[str, Path], crop: int, rounds: int) -> dict[str, Any]:
    """Milliseconds an image of epochs, and ratios; called in a process where opening files can be slow."""
    torch.set_num_threads(1)
    runs = {which: partial(_epoch, root, crop) for which, root in roots.items()}
    turns = runs | {f"{which}, slow": partial(run, delay=_DELAY) for which, run in runs.items()}
    check = {**runs, "torchvision": partial(runs["files"], backend="torchvision")}
    alike("epochs", {which: partial(run, 0) for which, run in check.items()})
    found = []
    with modules_not_collected():
        for number in range(-2, rounds):  # the first two warm up
            costs = alike("epochs", {which: partial(run, number) for which, run in turns.items()}, turn=number)
            wall, cpu = ({which: cost[part] for which, cost in costs.items()} for part in (0, 1))
            if wall["files, slow"] < 1000 * _DELAY:
                raise Red("the library that makes opening files slow has no effect")
            by_own = []
            for again in range(_PAIRS if number >= 0 else 1):
                pair = alike("epochs", {key: partial(turns[key], again) for key in _PAIR}, turn=again)
                by_own.append(pair["pack, slow"].seconds / pair["pack"].seconds)
            ratios = {
                "files by pack": wall["files"] / wall["pack"],
                "files by pack, CPU": cpu["files"] / cpu["pack"],
                "files by pack, slow": wall["files, slow"] / wall["pack, slow"],
                "pack, slow by pack": median(by_own),
            }
            found.append({**wall, **{f"{which}, CPU": spent for which, spent in cpu.items()}, **ratios})
    return summary(found[2:])


def _epoch(root: Path, crop: int, seed: int, delay: float = 0, backend: str = "cpu") -> tuple[Cost, int]:
    """Milliseconds an image, and a digest of all values and labels."""
    forget()
    end = (T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD))
    with accel.image_backend(backend, **({"threads": 1} if backend == "cpu" else {})):
        dataset = ImageFolder(str(root), T.Compose([T.RandomResizedCrop(crop), *end]))
        torch.manual_seed(seed)
        os.environ["SLOW_OPEN_US"] = str(round(1e6 * delay))
        digests, wall, cpu = list[Any](), -time.perf_counter(), -time.process_time()
        for images, labels in DataLoader(dataset, _BATCH, shuffle=True):
            values = images.numpy()
            wall, cpu = wall + time.perf_counter(), cpu + time.process_time()
            digests += zlib.crc32(values.data), *labels.tolist()
            wall, cpu = wall - time.perf_counter(), cpu - time.process_time()
        wall, cpu = wall + time.perf_counter(), cpu + time.process_time()
        os.environ["SLOW_OPEN_US"] = "0"
    return Cost(1000 * wall / len(dataset), 1000 * cpu / len(dataset)), hash(tuple(digests))


def packing(tree: Path, files: int, rounds: int, place: Path) -> dict[str, Any]:
    """Files a second, and a second of CPU time, on one core."""
    found = []
    for _ in range(rounds):
        with pinned(1), tempfile.TemporaryDirectory(dir=place) as there:
            parts, clock = dict[str, Cost](), Clock()
            writing.pack(str(tree), f"{there}/pack", partial(_phase, parts), workers=1)
            whole, clock = clock.cost(), Clock()
            unpacking.unpack(f"{there}/pack", f"{there}/tree")
            back = clock.cost()
        apart = Cost(*(spent - of_it for spent, of_it in zip(whole, parts["verifying"], strict=True)))
        costs = {"packing": apart, "packing and verifying": whole, "unpacking": back}
        rates = {key: files / cost.seconds for key, cost in costs.items()}
        found.append({**rates, **{f"{key}, CPU": files / cost.cpu_seconds for key, cost in costs.items()}})
    return summary(found)


@contextmanager
def _phase(parts: dict[str, Cost], title: str, total: int) -> Iterator[Silent]:
    """A progress bar that notes what each part of packing costs."""
    clock = Clock()
    yield Silent(title, total)
    parts[title] = clock.cost()


def summary(rounds: list[dict[str, float]]) -> dict[str, Any]:
    return {"medians": {key: median(each[key] for each in rounds) for key in rounds[0]}, "rounds": rounds}


def tree_of(contents: list[bytes], files: int, root: Path) -> Path:
    """Make a tree of files with some contents, again and again, 100 in a class."""
    for number in range(files):
        (there := root / f"{number // _CLASS:04}").mkdir(parents=True, exist_ok=True)
        (there / f"{number:06}.jpg").write_bytes(contents[number % len(contents)])
    return root


def packed(tree: Path) -> dict[str, Path]:
    writing.pack(str(tree), f"{tree}, packed")
    os.sync()  # so that the disk is idle
    return {"files": tree, "pack": Path(f"{tree}, packed")}


def pictures(args: Any) -> dict[str, list[bytes]]:
    """The contents of photos and of files of 64 pixels."""
    with folder(args.data) as (given, _):
        photos = [path.read_bytes() for path in sorted(given.rglob("*.jpg"))[: args.images]]
    small = [BytesIO() for _ in range(_SMALL)]
    for number, stream in enumerate(small):
        samples.picture(number, (64, 64)).save(stream, "JPEG", quality=92)
    return {"photos": photos, "64 pixels": [stream.getvalue() for stream in small]}


@command("packs")
def main() -> int:
    options = parser("bench.packs", str(__doc__).partition("\n")[0], out="packs.json", images=200, rounds=5)
    options.add_argument("--photos", dest="data", type=Path, metavar="DIR", help="the same as --data")
    options.add_argument("--files", type=at_least(1), default=100_000, metavar="N", help="to be listed [%(default)s]")
    args = options.parse_args()
    settings = {"threads": 1, "batch": _BATCH, "delay": _DELAY, "files": args.files}
    result: dict[str, Any] = {"epochs": {}, "packing": {}}
    contents = pictures(args)
    with tempfile.TemporaryDirectory(prefix="accel-packs-") as made, screen.Bar("packs", 5) as bar:
        place = Path(made)
        roots = packed(tree_of(contents["64 pixels"], args.files, place / "many"))
        result["listing"] = listing(roots, args.rounds)
        bar.advance()
        disk = slow_files(place)
        if isinstance(disk, str):
            raise WrongUsage(disk)
        preload = {"LD_PRELOAD": str(disk), "SLOW_FILES": made}
        for name, some in contents.items():
            roots = packed(tree_of(some, len(some), place / f"epochs of {name}"))
            time.sleep(memory.SETTLED + 0.1)  # younger files have no keys
            with patch.dict(os.environ, preload), ProcessPoolExecutor(1, get_context("spawn")) as slow:
                job = slow.submit(epochs, roots, _CROPS[name], args.rounds)
                result["epochs"][name] = {"images": len(some), **job.result()}
            bar.advance()
            tree = tree_of(some, _PACKED[name], place / f"packing {name}")
            result["packing"][name] = packing(tree, _PACKED[name], args.rounds, place)
            bar.advance()
    for title, group in {**result, "listing": {"seconds": result["listing"]}}.items():
        names = next(iter(group.values()))["medians"]
        rows = [[key, *(f"{each['medians'][key]:,.3f}" for each in group.values())] for key in names]
        show(Table(f"packs: {_UNITS[title]}", ("", *group), rows))
    write(args.out, {"load": os.getloadavg(), **settings, **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
