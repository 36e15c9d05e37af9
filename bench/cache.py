"""What a cache brings: epochs of torchvision, of the cpu backend without one, while one fills, and with a full one.

    python -m bench.cache [PIPELINE...] [--data DIR] [--images N] [--rounds N] [--folder DIR] [--out FILE]

CPU time of one process and one thread, in turns, with equal random numbers; every batch of every epoch is compared. A
round has a new cache: its first epoch fills it, the next has it. Then one of half the size.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.cache.cache import Cache
from accel.cli import samples, screen
from accel.cli.arguments import Red, command
from accel.cli.data import folder
from accel.cli.tables import Table, show
from accel.runtime import cached
from accel.system import memory
from bench.machine import known, parser, write
from bench.pipelines import MEAN, STD

_VALUES = (T.ToTensor(), T.Normalize(MEAN, STD))
_BATCH, _LARGE, _BUDGET = 32, 8, 4_000_000_000

PIPELINES: dict[str, Callable[[Any], Any]] = {
    "train": T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *_VALUES]),
    "eval": T.Compose([T.Resize(256), T.CenterCrop(224), *_VALUES]),
    "resize, crop": T.Compose([T.Resize(256), T.RandomCrop(224), T.RandomHorizontalFlip(), *_VALUES]),
}
ON_LARGE = ("train", "resize, crop")
"""Those that are measured on photos of 4000 x 3000 as well."""


def epoch(root: Path, name: str, seed: int, cache: str | None, backend: str = "cpu") -> tuple[float, str]:
    """Milliseconds of CPU time an image, and a digest of all values and of the random state behind them."""
    spent, digest = 0.0, hashlib.blake2b()
    photos = ImageFolder(root, PIPELINES[name])
    torch.manual_seed(seed)
    with accel.image_backend(backend, **({"threads": 1, "cache": cache} if backend == "cpu" else {})):
        begin = time.process_time()
        for images, _ in DataLoader(photos, _BATCH):
            values = images.numpy()
            spent += time.process_time() - begin
            digest.update(values.tobytes())
            begin = time.process_time()
    digest.update(torch.get_rng_state().numpy().tobytes())
    return 1000 * spent / len(photos), digest.hexdigest()


def measure(name: str, root: Path, files: Sequence[str], rounds: int, place: Path) -> dict[str, Any]:
    """Epochs of a pipeline, in turns."""
    whole, count = sum(map(os.path.getsize, files)), len(files)
    with tempfile.TemporaryDirectory(dir=place) as there:  # what is compiled at first use is
        for seed in range(2):
            epoch(root, name, seed, f"{there}:{_BUDGET // 1000}kB")
            epoch(root, name, seed, "auto")
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
    runs = {"cached": epoch(root, name, seed, option)}
    for other in others:
        backend = "torchvision" if other == "torchvision" else "cpu"
        runs[str(other)] = epoch(root, name, seed, None if backend == "torchvision" else other, backend)
    if len({digest for _, digest in runs.values()}) > 1:
        raise Red(f"{name}: the batches differ")
    return {which: spent for which, (spent, _) in runs.items()}


def _used(option: str) -> int:
    cache = cached._caches[option]
    assert isinstance(cache, Cache)
    return cache.used()[0]


def _linked(files: Sequence[str], root: Path) -> Path:
    """A folder as ``ImageFolder`` has it, of links."""
    (root / "all").mkdir(parents=True)
    for number, path in enumerate(files):
        (root / "all" / f"{number:06}.jpg").symlink_to(Path(path).absolute())
    return root


@command("cache")
def main() -> int:
    options = parser("bench.cache", str(__doc__).partition("\n")[0], out="cache.json", images=200, rounds=5)
    options.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(PIPELINES)} [all]")
    options.add_argument("--folder", type=Path, help="where the caches are made [the folder for temporary files]")
    args = options.parse_args()
    chosen = known("pipeline", args.pipelines, PIPELINES)
    torch.set_num_threads(1)
    with folder(args.data) as (root, _), tempfile.TemporaryDirectory() as made:
        files = sorted(str(path) for path in root.rglob("*.jpg"))[: args.images]
        large = [f"{made}/{number}.jpg" for number in range(min(_LARGE, args.images))]
        for number, path in enumerate(large):
            samples.picture(number, (4000, 3000)).save(path, "JPEG", quality=92)
        time.sleep(memory.SETTLED + 0.1)  # what is younger has no key
        photos, photos_large = _linked(files, Path(made, "photos")), _linked(large, Path(made, "large"))
        place = args.folder or Path(made)
        work = {name: partial(measure, name, photos, files, args.rounds, place) for name in chosen}
        for name in chosen:
            if name in ON_LARGE:
                work[f"{name}, 12 megapixels"] = partial(measure, name, photos_large, large, args.rounds, place)
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
