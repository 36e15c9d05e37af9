"""What a cache brings: epochs of torchvision, of the cpu backend without one, while one fills, and with a full one.

    python -m bench.cache [PIPELINE...] [--data DIR] [--images N] [--rounds N] [--folder DIR] [--out FILE]

CPU time of one process and one thread, in turns, with equal random numbers; every batch of every epoch is compared. A
round begins with a new cache and no stream indexes: two epochs; filling the cache ahead if half-decoded pictures are
kept; epochs with a full cache, and with one of half the size. For comparison: ``cache=None``, and the default, which
keeps indexes. Finally as many epochs of training as fill a cache.

A training runs one configuration without a break. So a turn with a full cache, or half of one, is an epoch that is not
measured and several that are, and likewise for all contestants beside it, torchvision included: this leaves out the
time of the switch, of opening the table and of cold memory, which is much for 200 images. With a full cache there are
several such turns in a round, of which each contestant's median is used, as 200 hits take only 15 ms. The numbers of
epochs and turns are in the result. Filling is measured from the first image on.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.cache.cache import Cache
from accel.cli import cache as cache_command
from accel.cli import screen
from accel.cli.arguments import command
from accel.cli.tables import Table, show
from accel.codec import store
from accel.runtime.memo import cached
from bench.epochs import alike, epoch, photos, size_of
from bench.index import fresh
from bench.machine import known, parser, write
from bench.pipelines import MEAN, STD

_VALUES = (T.ToTensor(), T.Normalize(MEAN, STD))
_BUDGET, _EPOCHS = 4_000_000_000, 12
_BEFORE = 1  # epochs of a turn, not measured


class Steady(NamedTuple):
    """The measuring of a steady state: epochs of a turn, and turns of each round."""

    epochs: int
    turns: int


PHOTOS, LARGE = Steady(5, 3), Steady(2, 1)
"""For photos as they are, and for large ones, which take so long that few are needed."""

PIPELINES: dict[str, Callable[[Any], Any]] = {
    "train": T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *_VALUES]),
    "eval": T.Compose([T.Resize(256), T.CenterCrop(224), *_VALUES]),
    "resize, crop": T.Compose([T.Resize(256), T.RandomCrop(224), T.RandomHorizontalFlip(), *_VALUES]),
}
RANDOM = ("train",)
"""Pipelines that crop first, for whose files half-decoded pictures are kept."""

ON_LARGE = ("train", "resize, crop")
"""Pipelines that are also measured on photos of 4000 x 3000."""


class Turns:
    """The same epochs with a cache, without any (``cache=None``), and with only stream indexes ("auto"), in turns."""

    def __init__(self, root: Path, name: str, option: str, steady: Steady) -> None:
        self.root, self.name, self.option, self._steady = root, name, option, steady
        self.indexes = {which: _no_indexes() for which in ("cached", "auto")}

    def epoch(self, seed: int, *others: str, steady: bool = False) -> dict[str, float]:
        """Milliseconds of CPU time an image, for each; ``steady``: of the epochs after the first one."""
        runs = {which: partial(self._one, seed, which, steady) for which in ("cached", *others)}
        return alike(self.name, runs, turn=seed)

    def full(self, seed: int, *others: str) -> dict[str, float]:
        """The median of each over several steady turns, each of which begins with another one."""
        turns = [self.epoch(seed + number, *others, steady=True) for number in range(self._steady.turns)]
        return {which: median(each[which] for each in turns) for which in turns[0]}

    def _one(self, seed: int, which: str, steady: bool) -> tuple[float, int]:
        store._store = self.indexes.get(which)
        backend = "torchvision" if which == "torchvision" else "cpu"
        option = {"cached": self.option, "auto": "auto"}.get(which)
        dataset = ImageFolder(self.root, PIPELINES[self.name])
        return epoch(
            dataset, seed, option, backend, before=_BEFORE * steady, count=self._steady.epochs if steady else 1
        )

    def filled(self) -> float:
        """Fill the cache ahead; milliseconds of CPU time an image."""
        paths = cache_command.files(self.root)
        begin = time.process_time()
        cache_command.filled(self.option, paths, 1)
        return 1000 * (time.process_time() - begin) / len(paths)


def _no_indexes() -> store.Store:
    fresh()
    entries = store.current()
    assert entries is not None
    return entries


def measure(
    name: str, root: Path, files: Sequence[str], rounds: int, place: Path, steady: Steady = PHOTOS
) -> dict[str, Any]:
    """Epochs of a pipeline, in turns."""
    whole, count = size_of(files), len(files)
    with tempfile.TemporaryDirectory(dir=place) as there:  # so that everything is compiled
        warm = Turns(root, name, f"{there}:{_BUDGET // 1000}kB", steady)
        for seed in range(2):
            warm.epoch(seed, "none", "auto")
            warm.filled()
    found: list[dict[str, float]] = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory(dir=place) as there:
            turns = Turns(root, name, f"{there}:{_BUDGET // 1000}kB", steady)
            first = turns.epoch(3 * number, "none", "auto")
            second = turns.epoch(3 * number + 1, "none", "auto")
            ahead = turns.filled() if name in RANDOM else 0.0
            full = turns.full(3 * number + 2, "none", "auto", "torchvision")
            used = _used(turns.option)
        with tempfile.TemporaryDirectory(dir=place) as there:
            turns = Turns(root, name, f"{there}:{used // 2000}kB", steady)
            if name in RANDOM:
                turns.filled()
            else:
                turns.epoch(3 * number)
            before = accel.stats()
            half = turns.epoch(3 * number + 2, "none", steady=True)
            after = accel.stats()
            hits = sum(after[kind] - before[kind] for kind in ("results used", "planes used"))
        two = {which: first[which] + second[which] for which in first}
        found.append(
            {
                "torchvision": full["torchvision"],
                "without": full["none"],
                "by indexes": full["auto"],
                "first epoch": first["cached"],
                "filling ahead": ahead,
                "full": full["cached"],
                "first by without": first["cached"] / first["none"],
                "first by indexes": first["cached"] / first["auto"],
                "two by without": two["cached"] / two["none"],
                "two by indexes": two["cached"] / two["auto"],
                "without by full": full["none"] / full["cached"],
                "indexes by full": full["auto"] / full["cached"],
                "torchvision by full": full["torchvision"] / full["cached"],
                "bytes by files'": used / whole,
                "half: hits": hits / count / (_BEFORE + steady.epochs),
                "half: without by cached": half["none"] / half["cached"],
            }
        )
    medians = {key: median(each[key] for each in found) for key in found[0]}
    measured = {"epochs before": _BEFORE, **steady._asdict()}
    return {"medians": medians, "images": count, "full, in each round": measured, "rounds": found}


def filling(root: Path, count: int, epochs: int, place: Path) -> list[dict[str, float]]:
    """Epochs of training from an empty cache on: the part of files found, and the time so far relative to others."""
    found, total = list[dict[str, float]](), dict.fromkeys(("cached", "none", "auto"), 0.0)
    with tempfile.TemporaryDirectory(dir=place) as there:
        turns = Turns(root, RANDOM[0], f"{there}:{_BUDGET // 1000}kB", PHOTOS)
        for seed in range(epochs):
            before = accel.stats()["planes used"]
            spent = turns.epoch(seed, "none", "auto")
            hits = (accel.stats()["planes used"] - before) / count
            total = {which: total[which] + spent[which] for which in spent}
            ratios = {f"by {which}": spent["cached"] / spent[which] for which in ("none", "auto")}
            so_far = {f"so far by {which}": total["cached"] / total[which] for which in ("none", "auto")}
            found.append({"found": hits, **ratios, **so_far})
    return found


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
                work[f"{name}, 12 megapixels"] = partial(measure, name, *large, args.rounds, place, LARGE)
        result: dict[str, Any] = {}
        with screen.Bar("cache", len(work) + 1) as bar:
            for name, run in work.items():
                result[name] = run()
                bar.advance()
            series = filling(given.root, len(given.files), _EPOCHS, place) if RANDOM[0] in chosen else []
    times = ("torchvision", "without", "by indexes", "first epoch", "filling ahead", "full")
    ratios = tuple(key for key in next(iter(result.values()))["medians"] if key not in times)
    rows = [[name, *(f"{each['medians'][key]:.3f}" for key in times)] for name, each in result.items()]
    show(Table("cache: ms of CPU time an image", ("", *times), rows))
    rows = [[name, *(f"{each['medians'][key]:.2f}" for key in ratios)] for name, each in result.items()]
    show(Table("cache: ratios", ("", *ratios), rows))
    if series:
        rows = [[str(number + 1), *(f"{value:.2f}" for value in each.values())] for number, each in enumerate(series)]
        show(Table("cache: epochs of training from an empty one on", ("", *series[0]), rows))
    write(args.out, {"load": os.getloadavg(), **result, "epochs of training": series})
    return 0


if __name__ == "__main__":
    sys.exit(main())
