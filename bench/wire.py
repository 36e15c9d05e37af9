"""What recipes on the wire cost: bytes beside files and results, and time on one core; every batch is compared.

    python -m bench.wire [--data DIR] [--images N] [--rounds N] [--out FILE]

A training crop an image: one message each, as a cluster's engine carries rows, and one for the whole batch. CPU time of
one thread; the batch is computed afterwards, and equals torchvision's in every bit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from PIL import Image
from torchvision import transforms as T

import accel
from accel import wire
from accel.cli.arguments import Red, command
from accel.cli.tables import Table, show
from bench.epochs import photos
from bench.machine import parser, write
from bench.pipelines import MEAN, STD

_TRAIN = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])


@command("wire")
def main(argv: Sequence[str] | None = None) -> int:
    description = (__doc__ or "").partition("\n")[0]
    args = parser("bench.wire", description, out="wire.json", rounds=9, images=128).parse_args(argv)
    with photos(args.data, args.images) as found:
        files = found.files
        expected = torch.stack([image for image, _ in _recorded(files)])
        with accel.image_backend("cpu", threads=1, cache=None):
            rounds = [_round(files, expected) for _ in range(args.rounds + 2)][2:]  # the first ones warm up
    spent = {name: median(each[0][name] for each in rounds) for name in rounds[0][0]}
    sizes = rounds[0][1]
    rows = [(name, f"{value:,.0f}") for part in (spent, sizes) for name, value in part.items()]
    show(Table(f"{len(files)} photos: µs, then bytes an image", ("", "median"), rows))
    write(args.out, {"images": len(files), "rounds": args.rounds, "us": spent, "bytes": sizes})
    return 0


def _recorded(files: Sequence[str]) -> list[tuple[Any, int]]:
    torch.manual_seed(0)
    return [(_TRAIN(Image.open(path).convert("RGB")), number) for number, path in enumerate(files)]


def _round(files: Sequence[str], expected: torch.Tensor) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds an image, and bytes an image."""
    spent = {}

    def timed(name: str, function: Callable[[], Any]) -> Any:
        begin = time.process_time()
        made = function()
        spent[name] = 1e6 * (time.process_time() - begin) / len(files)
        return made

    samples = timed("record", lambda: _recorded(files))
    messages = timed("dumps", lambda: [wire.dumps(each) for each in samples])
    timed("loads", lambda: [wire.loads(each) for each in messages])
    images, labels = timed("collate", lambda: wire.collate(messages))
    batch = torch.stack([image for image, _ in samples]), labels
    whole = timed("dumps of a batch", lambda: wire.dumps(batch))
    again, _ = timed("loads of a batch", lambda: wire.loads(whole))
    for each in (timed("compute", lambda: images.add(0)), again):
        if not torch.equal(each, expected):
            raise Red("a batch differs from torchvision's")
    own = [os.path.getsize(path) for path in files]
    sizes = {
        "file": sum(own) / len(own),
        "message": sum(map(len, messages)) / len(own),
        "at most over the file": max(len(each) - size for each, size in zip(messages, own, strict=True)),
        "in a message of the batch": len(whole) / len(own),
        "result, uint8": expected[0].numel(),
        "result, float32": 4 * expected[0].numel(),
    }
    return spent, sizes


if __name__ == "__main__":
    sys.exit(main())
