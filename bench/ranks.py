"""What ranks of torchrun gain by one store of stream indexes: epochs with the ranks' own stores, and with a shared one.

    python -m bench.ranks [--data DIR] [--images N] [--rounds N] [--out FILE]

Ranks of one thread without workers draw training crops in another order each epoch, so each rank meets files that
others had; the own stores are those of ranks that find no launcher. CPU time of all ranks by epoch, without the model;
checksums are compared. Turns alternate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.cli.arguments import Red, command
from accel.cli.data import folder
from accel.cli.tables import Table, show
from bench.epochs import linked
from bench.machine import ROOT, parser, write
from bench.pipelines import MEAN, STD

RANKS, EPOCHS, KINDS = 4, 3, ("own", "shared")
_TRAIN = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])


def rank(root: str, kind: str) -> None:
    """The ranks' program: the first prints ms of CPU time an image, images by an index, and a checksum, by epoch."""
    if kind == "own":
        del os.environ["LOCAL_RANK"]
    accel.set_image_backend("cpu", threads=1)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(distributed.get_rank())
    data = ImageFolder(root, _TRAIN)
    sampler: Any = DistributedSampler(data)
    next(iter(DataLoader(data, 2)))[0].sum()  # compiled code is loaded
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        begin, before, total = time.process_time(), accel.stats()["indexed"], 0.0
        for images, _ in DataLoader(data, 25, sampler=sampler):
            total += float(images.sum())
        found = [time.process_time() - begin, accel.stats()["indexed"] - before, total]
        every = torch.tensor(found, dtype=torch.float64)
        distributed.all_reduce(every)
        if distributed.get_rank() == 0:
            print(json.dumps([1000 * float(every[0]) / len(data), int(every[1]), float(every[2])]), flush=True)
    distributed.destroy_process_group()


def turn(root: str, kind: str) -> list[list[float]]:
    """What the ranks' program prints, by epoch."""
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "-m", "bench.ranks"]
    run = [sys.executable, "-m", *words, "--rank", kind, root]
    told = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(run, env=told, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@command("ranks")
def main() -> int:
    """Measure. Exit status: 0 measured, 1 checksums differ, 2 wrong usage."""
    args = parser("bench.ranks", str(__doc__).partition("\n")[0], out="ranks.json", images=200, rounds=5).parse_args()
    turns: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    with folder(args.data) as (data, _), tempfile.TemporaryDirectory() as made:
        files = sorted(str(path) for path in data.rglob("*.jpg"))[: args.images]
        root = str(linked(files, Path(made) / "photos"))
        for number in range(args.rounds):
            for kind in KINDS if number % 2 else reversed(KINDS):
                turns[kind].append(turn(root, kind))
    if len({tuple(each[2] for each in epochs) for kind in KINDS for epochs in turns[kind]}) > 1:
        raise Red("checksums differ")
    ms = {kind: [median(epochs[epoch][0] for epochs in turns[kind]) for epoch in range(EPOCHS)] for kind in KINDS}
    indexed = {kind: [turns[kind][0][epoch][1] for epoch in range(EPOCHS)] for kind in KINDS}
    rows = [(kind, *(f"{a:.2f} ({b:.0f})" for a, b in zip(ms[kind], indexed[kind], strict=True))) for kind in KINDS]
    show(Table("ms an image (images by an index)", ("store", *(f"epoch {n + 1}" for n in range(EPOCHS))), rows))
    gain = [own / shared for own, shared in zip(ms["own"], ms["shared"], strict=True)]
    write(args.out, {"ranks": RANKS, "images": args.images, "ms": ms, "indexed": indexed, "gain": gain, "turns": turns})
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[3], sys.argv[2])
    else:
        sys.exit(main())
