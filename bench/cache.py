"""What a cache brings: epochs of torchvision, of the cpu backend without one, while one fills, and with a full one.

    python -m bench.cache [PIPELINE...] [--data DIR] [--images N] [--rounds N] [--folder DIR] [--out FILE]

CPU time of one process and one thread, in turns, with equal random numbers; every batch of every epoch is compared. A
round has a new cache: its first epoch fills it, the next has it. Then one of half the size.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.cache.cache import Cache
from accel.cli import screen
from accel.cli.arguments import command
from accel.cli.tables import Table, show
from accel.runtime import cached
from bench.epochs import alike, epoch, photos, size_of
from bench.machine import known, parser, write
from bench.pipelines import MEAN, STD

_VALUES = (T.ToTensor(), T.Normalize(MEAN, STD))
_BUDGET = 4_000_000_000

PIPELINES: dict[str, Callable[[Any], Any]] = {
    "train": T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *_VALUES]),
    "eval": T.Compose([T.Resize(256), T.CenterCrop(224), *_VALUES]),
    "resize, crop": T.Compose([T.Resize(256), T.RandomCrop(224), T.RandomHorizontalFlip(), *_VALUES]),
}
ON_LARGE = ("train", "resize, crop")
"""Those that are measured on photos of 4000 x 3000 as well."""


def measure(name: str, root: Path, files: Sequence[str], rounds: int, place: Path) -> dict[str, Any]:
    """Epochs of a pipeline, in turns."""
    whole, count = size_of(files), len(files)
    with tempfile.TemporaryDirectory(dir=place) as there:  # what is compiled at first use is
        for seed in range(2):
            epoch(ImageFolder(root, PIPELINES[name]), seed, f"{there}:{_BUDGET // 1000}kB")
            epoch(ImageFolder(root, PIPELINES[name]), seed, "auto")
    found: list[dict[str, float]] = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory(dir=place) as there:
            option = f"{there}:{_BUDGET // 1000}kB"
            first = _turn(root, name, 3 * number, option, "auto", None)
            _turn(root, name, 3 * number + 1, option)
            later = _turn(root, name, 3 * number + 2, option, "auto", "torchvision")
            used = _used(option)
        with tempfile.TemporaryDirectory(dir=place) as there:
            option = f"{there}:{used // 2000}kB"
            _turn(root, name, 3 * number, option)
            before = accel.stats()
            half = _turn(root, name, 3 * number + 2, option, "auto")
            after = accel.stats()
            hits = sum(after[kind] - before[kind] for kind in ("results used", "planes used"))
        found.append(
            {
                "torchvision": later["torchvision"],
                "without": later["auto"],
                "filling": first["cached"],
                "full": later["cached"],
                "filling by without": first["cached"] / first["auto"],
                "two epochs by without": (first["cached"] + later["cached"]) / (first["auto"] + later["auto"]),
                "without by full": later["auto"] / later["cached"],
                "torchvision by full": later["torchvision"] / later["cached"],
                "bytes by files'": used / whole,
                "half: hits": hits / count,
                "half: without by cached": half["auto"] / half["cached"],
            }
        )
    return {"medians": {key: median(each[key] for each in found) for key in found[0]}, "images": count, "rounds": found}


def _turn(root: Path, name: str, seed: int, option: str, *others: str | None) -> dict[str, float]:
    """The milliseconds of epochs that must be alike: with the cache, and with others in its place."""
    dataset = ImageFolder(root, PIPELINES[name])
    runs = {"cached": partial(epoch, dataset, seed, option)}
    for other in others:
        backend = "torchvision" if other == "torchvision" else "cpu"
        runs[str(other)] = partial(epoch, dataset, seed, None if backend == "torchvision" else other, backend)
    return alike(name, runs)


def _used(option: str) -> int:
    cache = cached._caches[option]
    assert isinstance(cache, Cache)
    return cache.used()[0]


@command("cache")
def main() -> int:
    options = parser("bench.cache", str(__doc__).partition("\n")[0], out="cache.json", images=200, rounds=5)
    options.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(PIPELINES)} [all]")
    options.add_argument("--folder", type=Path, help="where the caches are made [the folder for temporary files]")
    args = options.parse_args()
    chosen = known("pipeline", args.pipelines, PIPELINES)
    with photos(args.data, args.images) as given:
        place = args.folder or given.made
        work = {name: partial(measure, name, given.root, given.files, args.rounds, place) for name in chosen}
        for name in chosen:
            if name in ON_LARGE:
                large = given.large, given.large_files
                work[f"{name}, 12 megapixels"] = partial(measure, name, *large, args.rounds, place)
        result: dict[str, Any] = {}
        with screen.Bar("cache", len(work)) as bar:
            for name, run in work.items():
                result[name] = run()
                bar.advance()
    times = ("torchvision", "without", "filling", "full")
    ratios = tuple(key for key in next(iter(result.values()))["medians"] if key not in times)
    rows = [[name, *(f"{each['medians'][key]:.3f}" for key in times)] for name, each in result.items()]
    show(Table("cache: ms of CPU time an image", ("", *times), rows))
    rows = [[name, *(f"{each['medians'][key]:.2f}" for key in ratios)] for name, each in result.items()]
    show(Table("cache: ratios", ("", *ratios), rows))
    write(args.out, {"load": os.getloadavg(), **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
