"""Whole epochs of photos in folders, one process and one thread, for ``bench.index`` and ``bench.cache``."""

from __future__ import annotations

import gc
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

import accel
from accel.cli import samples
from accel.cli.arguments import Red
from accel.cli.data import folder
from accel.system import memory

BATCH, LARGE = 32, 32
_APART = 1 << 20  # distance of the seeds of epochs that are run together

T = TypeVar("T")


class Photos(NamedTuple):
    """Photos in a folder; some of 4000 x 3000, made for the run, in another; and a folder for temporary files."""

    files: Sequence[str]
    root: Path
    large_files: Sequence[str]
    large: Path
    made: Path


@contextmanager
def photos(data: Path | None, images: int) -> Iterator[Photos]:
    """Photos in folders of links for ``ImageFolder``; all are old enough to have keys."""
    torch.set_num_threads(1)
    with folder(data) as (root, _), tempfile.TemporaryDirectory() as made, modules_not_collected():
        files = sorted(str(path) for path in root.rglob("*.jpg"))[:images]
        large = [f"{made}/{number}.jpg" for number in range(min(LARGE, images))]
        for number, path in enumerate(large):
            samples.picture(number, (4000, 3000)).save(path, "JPEG", quality=92)
        time.sleep(memory.SETTLED + 0.1)  # younger files have no keys
        place = Path(made)
        yield Photos(files, linked(files, place / "photos"), large, linked(large, place / "large"), place)


@contextmanager
def modules_not_collected() -> Iterator[None]:
    """Freeze all modules for the garbage collector, which would take 0.2 s for them, as long as 200 photos."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def linked(files: Sequence[str], root: Path) -> Path:
    """Make a folder of links for ``ImageFolder``."""
    (root / "all").mkdir(parents=True)
    for number, path in enumerate(files):
        (root / "all" / f"{number:06}.jpg").symlink_to(Path(path).absolute())
    return root


def epoch(
    dataset: Dataset[Any],
    seed: int,
    cache: str | None,
    backend: str = "cpu",
    *,
    before: int = 0,
    count: int = 1,
    batch: int = BATCH,
) -> tuple[float, int]:
    """Milliseconds of CPU time an image, and a digest of all values and of the random state after them.

    Args:
        before: the number of epochs that are run first, and not measured.
        count: the number of epochs that are measured.
    """
    seeds = [seed + number * _APART for number in range(before + count)]
    found = epochs(dataset, seeds, cache, backend, batch)
    return sum(spent for spent, _ in found[before:]) / count, hash(tuple(digest for _, digest in found))


def epochs(
    dataset: Dataset[Any], seeds: Sequence[int], cache: str | None, backend: str = "cpu", batch: int = BATCH
) -> list[tuple[float, int]]:
    """The same for each of the epochs with these seeds, run one after the other under one backend."""
    found = []
    with accel.image_backend(backend, **({"threads": 1, "cache": cache} if backend == "cpu" else {})):
        loader = DataLoader(dataset, batch)
        for seed in seeds:
            torch.manual_seed(seed)
            spent, digests = 0.0, []
            begin = time.process_time()
            for images, _ in loader:
                values = [each.numpy() for each in (images if isinstance(images, list) else [images])]
                spent += time.process_time() - begin
                digests += [zlib.crc32(each.data) for each in values]
                begin = time.process_time()
            digests.append(zlib.crc32(torch.get_rng_state().numpy().data))
            found.append((1000 * spent / len(dataset), hash(tuple(digests))))  # type: ignore[arg-type]
    return found


def alike(name: str, runs: Mapping[str, Callable[[], tuple[T, int]]], *, turn: int = 0) -> dict[str, T]:
    """The results of runs, whose digests must be equal; run from number ``turn`` on and around.

    Raises:
        Red: the digests differ.
    """
    order = [*runs][turn % len(runs) :] + [*runs][: turn % len(runs)]
    found = {which: runs[which]() for which in order}
    if len({digest for _, digest in found.values()}) > 1:
        raise Red(f"{name}: the batches differ")
    return {which: found[which][0] for which in runs}


def size_of(files: Sequence[str]) -> int:
    """The bytes of files."""
    return sum(map(os.path.getsize, files))
