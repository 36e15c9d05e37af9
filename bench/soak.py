"""``python -m bench.soak``: many epochs through one loader; memory, threads and open files must not grow.

Exit status: 0 flat, 1 something grew by more than the limit after the fifth epoch, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.table import Table
from torch.utils.data import DataLoader
from torchvision import transforms as T

import accel
from accel.cli import screen
from accel.cli.arguments import at_least
from accel.cli.data import DataError, folder, open_folder

_SETTLED = 5  # epochs until caches and allocators are full
_TRAIN = T.Compose(
    [
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ToTensor(),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)


class Use(NamedTuple):
    """What a process holds."""

    own: int
    """resident bytes, without shared memory"""
    shared: int
    """resident bytes of shared memory"""
    threads: int
    files: int

    @classmethod
    def of(cls, pid: int) -> Use:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        kilobytes = {name: int(fields[name].split()[0]) for name in ("RssAnon", "RssFile", "RssShmem")}
        own = 1024 * (kilobytes["RssAnon"] + kilobytes["RssFile"])
        return cls(own, 1024 * kilobytes["RssShmem"], int(fields["Threads"]), len(os.listdir(f"/proc/{pid}/fd")))

    @property
    def resident(self) -> int:
        return self.own + self.shared


def soak(data: Path, workers: int, epochs: int, batch_size: int, limit: int | None) -> list[list[Use]]:
    """The use of the main process and of each worker, after every epoch."""
    opened = open_folder(data, _TRAIN, limit)
    loader = DataLoader(
        opened.dataset, batch_size, sampler=opened.order, num_workers=workers, persistent_workers=workers > 0
    )
    uses = []
    with screen.Bar(f"{workers} workers", epochs) as bar:
        for _ in range(epochs):
            iterator = iter(loader)
            for images, _ in iterator:
                images.sum()
            del images
            gc.collect()
            pids = [worker.pid for worker in getattr(iterator, "_workers", [])]
            uses.append([Use.of(os.getpid()), *(Use.of(pid) for pid in pids)])
            bar.advance()
    return uses


def growth(uses: list[Use]) -> float:
    """The highest resident memory after the fifth epoch, by that of the fifth, less one."""
    return max(use.resident for use in uses[_SETTLED - 1 :]) / uses[_SETTLED - 1].resident - 1


def grew(uses: list[Use], percent: float) -> list[str]:
    """What grew too much after the fifth epoch, in words."""
    settled, last = uses[_SETTLED - 1], uses[-1]
    found = []
    if growth(uses) > percent / 100:
        found.append(f"resident memory by {growth(uses):.1%}")
    if last.threads > settled.threads:
        found.append(f"threads from {settled.threads} to {last.threads}")
    if last.files > settled.files:
        found.append(f"open files from {settled.files} to {last.files}")
    return found


def show(title: str, names: list[str], uses: list[list[Use]]) -> None:
    """A table: a row an epoch."""
    table = Table(title=title, title_justify="left", min_width=70)
    table.add_column("epoch", justify="right")
    for name in names:
        table.add_column(f"{name}: MB, of it\nshared; threads; files", justify="right")
    for number, row in enumerate(uses, 1):
        cells = (f"{use.resident / 1e6:.1f}, {use.shared / 1e6:.1f}; {use.threads}; {use.files}" for use in row)
        table.add_row(str(number), *cells)
    screen.out.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if not Path("/proc/self/status").exists():
        screen.fail("soak", "needs /proc, that is, Linux")
        return 2
    torch.set_num_threads(1)
    accel.set_image_backend(args.backend)
    failed = False
    try:
        with folder(args.data) as (root, name):
            for workers in args.workers:
                uses = soak(root, workers, args.epochs, args.batch_size, args.limit)
                names = ["main", *(f"worker {number}" for number in range(workers))]
                show(f"{name}, {workers} workers, backend {args.backend}", names, uses)
                for process, column in zip(names, map(list, zip(*uses, strict=True)), strict=True):
                    found = grew(column, args.percent)
                    failed |= bool(found)
                    if found:
                        screen.fail("soak", f"{workers} workers: {process} grew: {'; '.join(found)}")
                    else:
                        screen.note(f"{process}: {growth(column):+.2%} after epoch {_SETTLED}")
    except DataError as error:
        screen.fail("soak", str(error))
        return 2
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak",
        description="Run many epochs through one loader and print what main process and workers hold after each.",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of images [made for the run]")
    parser.add_argument("--epochs", type=at_least(_SETTLED + 1), default=50, metavar="N", help="[%(default)s]")
    parser.add_argument("--workers", type=at_least(0), nargs="+", default=[0, 2], metavar="N", help="[0 2]")
    parser.add_argument("--batch-size", type=at_least(1), default=50, metavar="N", help="[%(default)s]")
    parser.add_argument("--limit", type=at_least(1), metavar="N", help="use N images of the folder [all]")
    parser.add_argument("--percent", type=float, default=2, help="growth allowed after epoch 5 [%(default)s]")
    parser.add_argument("--backend", default="cpu", help="accel's backend, or torchvision [%(default)s]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
