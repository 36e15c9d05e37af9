"""``python -m bench.soak``: many epochs through loaders; memory, threads and open files must not grow.

One loader with ImageNet's training pipeline; or, with ``--mixed``, in every epoch all of the benchmark's pipelines on
files, in v1 and v2, each with its own loader, so that caches fill for longer.

Exit status: 0 flat, 1 something grew by more than the limit after the fifth epoch, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader
from torchvision.transforms import v2

import accel
from accel.cli import screen
from accel.cli.arguments import WrongUsage, at_least, command
from accel.cli.data import folder, open_folder
from accel.cli.tables import Table, show
from bench.pipelines import PIPELINES

_SETTLED = 5  # the number of epochs after which caches and allocators are full


class Use(NamedTuple):
    """The use of a process: megabytes in memory (all, and shared), threads, open files, and files in /dev/shm that have
    its number in their names."""

    resident: float
    shared: float
    threads: int
    files: int
    named: int

    @classmethod
    def of(cls, pid: int) -> Use:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found = {name: text.split()[0] for name, _, text in (line.partition(":") for line in lines) if text.split()}
        anonymous, of_files, shared = (int(found[f"Rss{kind}"]) * 1024 / 1e6 for kind in ("Anon", "File", "Shmem"))
        files, named = len(os.listdir(f"/proc/{pid}/fd")), sum(f"_{pid}_" in each for each in os.listdir("/dev/shm"))
        return cls(anonymous + of_files + shared, shared, int(found["Threads"]), files, named)

    def __str__(self) -> str:
        return f"{self.resident:.1f}, {self.shared:.1f}; {self.threads}; {self.files}, {self.named}"


def soak(args: argparse.Namespace, data: Path, workers: int) -> list[list[Use]]:
    """The use of the main process, and of workers that live as long as one loader, after every epoch."""
    transforms = [PIPELINES["train"].v1()]
    if args.mixed:
        chosen = [pipeline for pipeline in PIPELINES.values() if pipeline.source == "files"]
        transforms = [made for each in chosen for made in (each.v1(), v2.Compose([v2.ToImage(), each.v2()]))]
    persistent = workers > 0 and not args.mixed and args.start is None
    loaders = [
        DataLoader(
            each.dataset,
            args.batch_size,
            sampler=each.order,
            num_workers=workers,
            collate_fn=_images if args.mixed else None,
            persistent_workers=persistent,
            multiprocessing_context=args.start if workers else None,
        )
        for each in (open_folder(data, transform, args.limit) for transform in transforms)
    ]
    uses = []
    with screen.Bar(f"{workers} workers{', mixed' * args.mixed}", args.epochs * len(loaders)) as bar:
        for _ in range(args.epochs):
            for loader in loaders:
                iterator = iter(loader)
                for batch in iterator:
                    for images in batch:
                        images.sum()
                bar.advance()
            pids = [worker.pid for worker in getattr(iterator, "_workers", [])] if persistent else []
            del iterator
            gc.collect()
            with suppress(AttributeError):  # only glibc has it; kept fragments would look like growth
                ctypes.CDLL(None).malloc_trim(0)
            uses.append([Use.of(pid) for pid in (os.getpid(), *pids)])
    return uses


def _images(samples: list[tuple[Any, int]]) -> list[Any]:
    """The images of a batch, stacked if they have one size."""
    images = [image[0] if isinstance(image, tuple) else image for image, _ in samples]
    return [torch.stack(images)] if len({image.shape for image in images}) == 1 else images


def grew(uses: Sequence[Use], percent: float) -> tuple[float, list[str]]:
    """The growth after the fifth epoch, from its memory to the least memory of the last third; and what is too much.

    The least is used, as memory that an allocator keeps comes and goes, while leaks only grow.
    """
    settled, last, after = uses[_SETTLED - 1], uses[-1], uses[_SETTLED:]
    growth = min(use.resident for use in after[-max(len(after) // 3, 1) :]) / settled.resident - 1
    found = [f"resident memory by {growth:.1%}"] if growth > percent / 100 else []
    for name in ("threads", "files", "named"):
        before, now = getattr(settled, name), getattr(last, name)
        if now > before:
            found.append(f"{name} from {before} to {now}")
    return growth, found


@command("soak")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of images [made for the run]")
    parser.add_argument("--limit", type=at_least(1), metavar="N", help="use N images of it [all]")
    parser.add_argument("--epochs", type=at_least(_SETTLED + 1), default=50, metavar="N", help="[%(default)s]")
    parser.add_argument("--workers", type=at_least(0), nargs="+", default=[0, 2], metavar="N", help="[0 2]")
    parser.add_argument("--batch-size", type=at_least(1), default=50, metavar="N", help="[%(default)s]")
    parser.add_argument("--percent", type=float, default=2, help="growth allowed after epoch 5 [%(default)s]")
    parser.add_argument("--mixed", action="store_true", help="all pipelines, a loader each, in every epoch")
    parser.add_argument("--start", choices=("fork", "spawn", "forkserver"), help="workers start so, in every epoch")
    parser.add_argument("--backend", default="cpu", help="accel's backend, or torchvision [%(default)s]")
    parser.add_argument("--device", help="its device: with --backend cuda, cpu")
    args = parser.parse_args(argv)
    if not Path("/proc/self/status").exists():
        raise WrongUsage("needs /proc, that is, Linux")
    torch.set_num_threads(1)
    accel.set_image_backend(args.backend, **({"device": args.device} if args.device else {}))
    failed = False
    with folder(args.data) as (root, name):
        for workers in args.workers:
            uses = soak(args, root, workers)
            names = ["main", *(f"worker {number}" for number in range(len(uses[0]) - 1))]
            columns = ("epoch", *(f"{each}: MB, of it shared; threads; files, in /dev/shm" for each in names))
            rows = [(str(number), *map(str, row)) for number, row in enumerate(uses, 1)]
            show(Table(f"{name}, {workers} workers, backend {args.backend}", columns, rows))
            for process, column in zip(names, zip(*uses, strict=True), strict=True):
                growth, found = grew(column, args.percent)
                failed |= bool(found)
                if found:
                    screen.fail("soak", f"{workers} workers: {process} grew: {'; '.join(found)}")
                else:
                    screen.note(f"{process}: {growth:+.2%} after epoch {_SETTLED}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
