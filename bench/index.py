"""What the stream index brings: epochs of the cpu backend without it, the first that has it, and those that follow.

    python -m bench.index [PIPELINE...] [--data DIR] [--images N] [--rounds N] [--out FILE]

CPU time of one process and one thread, with equal random numbers; every batch is compared. A training runs one epoch
after the other under one backend, so a round has two turns of five epochs each: with a new store, and without one
(cache=None). The first epoch of each includes the time to put the backend into force. In the second one indexes still
grow, where crops reach further down than the first ones did; the later ones are those that follow. Before a turn an
epoch without a store is run, unmeasured, which leaves memory and caches as an earlier epoch does. The order of the
turns alternates.
What the first epoch costs is a few percent at most, so it is also measured by many pairs of single epochs of training.
For pipelines that make several views of an image, the first epoch is also compared with one that opens the file anew
for every view, to show the gain by kept pictures. Also measured is the memory that the store takes in all, if two
workers and their parent use it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.cli import screen
from accel.cli.arguments import command
from accel.cli.tables import Table, show
from accel.codec import store
from accel.system import memory
from bench.epochs import BATCH, alike, epoch, epochs, linked, photos, size_of
from bench.machine import known, parser, write
from bench.pipelines import MEAN, STD

_END = (T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD))
_STORE, _EPOCHS = 1 << 28, 5
_of_turns: list[int] = []  # the descriptor of the last turn's store
_PAIRS = 100
_OF_VIEWS = 64  # images of an epoch with several views, which takes as long as one of all images in one view

View = Callable[[Any], Any]


def _crop(size: int, *scale: float) -> Any:
    return T.Compose([T.RandomResizedCrop(size, scale=scale), *_END])


def _of_ten(number: int, image: Any) -> Any:
    return T.functional.to_tensor(T.TenCrop(224)(T.Resize(256)(image))[number])


def _ten(image: Any) -> list[torch.Tensor]:
    return [T.functional.to_tensor(crop) for crop in T.TenCrop(224)(T.Resize(256)(image))]


PIPELINES: dict[str, Any] = {
    "train": _crop(224, 0.08, 1.0),
    "eval": T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(MEAN, STD)]),
    "multi-crop": [_crop(224, 0.4, 1.0)] * 2 + [_crop(96, 0.05, 0.4)] * 8,
    "ten-crop": [partial(_of_ten, number) for number in range(10)],
}
"""A transform, or one for each view of an image."""

TOGETHER = {"ten-crop": _ten}
"""Functions that make all views of an image, if these are not made by one transform each."""

LARGER_BATCHES = 100
"""The batch size with which training is measured again, as an accelerator gets 64 to 256 images at a time."""

ON_LARGE = ("train",)
"""Pipelines that are also measured on photos of 4000 x 3000."""


class _Apart(ImageFolder):  # type: ignore[misc]
    """A dataset that opens the file anew for every view."""

    def __init__(self, root: Path, views: Sequence[View]) -> None:
        super().__init__(root)
        self.views = views

    def __getitem__(self, index: int) -> Any:
        path, target = self.samples[index]
        return [view(self.loader(path)) for view in self.views], target


def measure(name: str, root: Path, files: Sequence[str], rounds: int, batch: int = BATCH) -> dict[str, Any]:
    """Measure epochs of a pipeline, in turns, on the photos below ``root``, which are ``files``."""
    views = PIPELINES[name]
    several = isinstance(views, list)
    whole = TOGETHER.get(name, lambda image: [view(image) for view in views]) if several else views
    dataset = ImageFolder(root, whole)
    found: list[dict[str, float]] = []
    for number in range(rounds):
        seeds = [1000 * number + each for each in range(_EPOCHS)]
        turns = {
            "with": partial(turn, dataset, seeds, "auto", batch),
            "without": partial(turn, dataset, seeds, None, batch),
        }
        if several:
            turns["apart"] = partial(turn, _Apart(root, views), seeds, None, batch)
        times = alike(name, turns, turn=number)
        (first_without, *without), (first, *later) = times["without"], times["with"]
        ratios = [each / other for each, other in zip(without, later, strict=True)]
        found.append(
            {
                "without": median(without),
                "first": first,
                "second": later[0],
                "later": median(later[1:]),
                "first by without": first / first_without,
                "without by second": ratios[0],
                "without by later": median(ratios[1:]),
            }
        )
        if several:
            found[-1]["views apart by first"] = times["apart"][0] / first
    size, of_files = kept(), size_of(files)
    medians = {key: median(each[key] for each in found) for key in found[0]}
    return {"medians": medians, "images": len(files), "share of the files' bytes": size / of_files, "rounds": found}


def first_epochs(name: str, root: Path, pairs: int) -> dict[str, Any]:
    """Measure single epochs of a pipeline in pairs, the first one with a new store and one without a store.

    Found are the median and the quartiles of their ratios, and how far the median may be off (its standard error).
    """
    dataset, ratios = ImageFolder(root, PIPELINES[name]), []
    for number in range(pairs):
        caches = {"with": "auto", "without": None}
        turns = {key: partial(turn, dataset, [number], cache, BATCH) for key, cache in caches.items()}
        times = alike(name, turns, turn=number)
        ratios.append(times["with"][0] / times["without"][0])
    low, _, high = quartiles = quantiles(ratios)
    deviation = (high - low) / 1.349  # of values that are normally distributed but for outliers
    error = 1.2533 * deviation / pairs**0.5  # of their median
    return {"pairs": pairs, "median": median(ratios), "standard error": error, "quartiles": quartiles}


def turn(dataset: Dataset[Any], seeds: Sequence[int], cache: str | None, batch: int) -> tuple[list[float], int]:
    """Run epochs in succession, with a new store if there is a cache: milliseconds of each, and a digest of all."""
    epoch(dataset, seeds[0], None, batch=batch)
    if cache is not None:
        while _of_turns:  # nothing uses it any more
            former = _of_turns.pop()
            os.ftruncate(former, 0)
            os.close(former)
        _of_turns.append(fresh())
    found = epochs(dataset, seeds, cache, batch=batch)
    return [spent for spent, _ in found], hash(tuple(digest for _, digest in found))


def fresh() -> int:
    """Begin a new store; return its descriptor."""
    file = memory.anonymous_file(_STORE)
    store.share(file, _STORE)
    return file


def kept() -> int:
    """The bytes of all entries, in whole segments."""
    entries = store.current()
    assert entries is not None
    return entries.used()[0]


def shared(root: Path, files: Sequence[str]) -> dict[str, Any]:
    """The store's share of the memory of two workers and their parent (proportional set sizes), and its entries'."""
    inode = os.fstat(fresh()).st_ino
    with accel.image_backend("cpu"):
        dataset = ImageFolder(root, PIPELINES["train"])
        loader = DataLoader(dataset, BATCH, num_workers=2, persistent_workers=True)
        for _ in range(2):
            for images, _ in loader:
                images.numpy()
        workers = [worker.pid for worker in loader._iterator._workers]  # type: ignore[union-attr]
        used = [sum(_proportional(pid, inode, field) for pid in (os.getpid(), *workers)) for field in ("Pss", "Rss")]
    entries, of_files = kept(), size_of(files)
    return {
        "processes": 3,
        "entries": entries,
        "files": of_files,
        "proportional": used[0],
        "resident, added up": used[1],
    }


def _proportional(pid: int, inode: int, field: str) -> int:
    """The bytes of a file in a process's memory, by a field of its maps."""
    total, inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            inside = words[4] == str(inode)
        elif inside and words[0] == f"{field}:":
            total += 1024 * int(words[1])
    return total


@command("index")
def main() -> int:
    options = parser("bench.index", str(__doc__).partition("\n")[0], out="index.json", images=200, rounds=7)
    options.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(PIPELINES)} [all]")
    args = options.parse_args()
    chosen = known("pipeline", args.pipelines, PIPELINES)
    with photos(args.data, args.images) as given:
        few = given.files[:_OF_VIEWS]
        few_root = linked(few, given.made / "few")
        work = {}
        for name, pipeline in chosen.items():
            of = (few_root, few) if isinstance(pipeline, list) else (given.root, given.files)
            work[name] = partial(measure, name, *of, args.rounds)
            if name in ON_LARGE:
                larger = partial(measure, name, *of, args.rounds, LARGER_BATCHES)
                work[f"{name}, batches of {LARGER_BATCHES}"] = larger
                work[f"{name}, 12 megapixels"] = partial(measure, name, given.large, given.large_files, args.rounds)
        if "train" in chosen:
            work["first epochs"] = partial(first_epochs, "train", given.root, _PAIRS)
        result: dict[str, Any] = {}
        with screen.Bar("index", len(work)) as bar:
            for name, run in work.items():
                result[name] = run()
                bar.advance()
        result["memory"] = shared(given.root, given.files)
    times = ("without", "first", "second", "later")
    ratios = ("first by without", "without by second", "without by later", "views apart by first")
    rows = []
    for name, each in result.items():
        if "medians" in each:
            numbers, share = each["medians"], each["share of the files' bytes"]
            figures = (f"{numbers[key]:.3f}" if key in numbers else "" for key in times + ratios)
            rows.append((name, *figures, f"{100 * share:.2f}%"))
    columns = "", "without", "first epoch", "second", "later", "first / without", "without / second", "without / later"
    show(Table("stream index: ms of CPU time an image", (*columns, "views apart / first", "of the bytes"), rows))
    if "first epochs" in result:
        pairs, ratio, error, _ = result["first epochs"].values()
        print(f"first epoch of train beside an epoch without, {pairs} pairs: {ratio:.4f}, standard error {error:.4f}")
    write(args.out, {"load": os.getloadavg(), **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
