"""``python -m bench.gpu.predict``: predictions for the JPEG decoder on a GPU, as tables in Markdown.

What is counted, and what is assumed, is in ``counts.py``. ``python -m bench.gpu --only decode`` measures the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accel.backends.cuda.jpeg import Wanted
from accel.backends.cuda.jpeg.decoder import is_plain
from accel.backends.cuda.jpeg.layout import KERNELS
from accel.cli.arguments import at_least
from accel.cli.data import folder, open_folder
from accel.cli.tables import Table, show
from accel.codec.header import claim
from bench.gpu import counts, decode
from bench.gpu.setting import photos

EMIT = 0.29e-3 / 512  # seconds of the fused pass for a photo (docs/kernels.md)
UPLOAD = 50e9  # bytes a second

Trips = np.ndarray


class Batch(NamedTuple):
    """A batch, what was counted of it, and how long the kernels are predicted to take."""

    counted: counts.Counted
    trips: Trips
    work: dict[str, np.ndarray]
    seconds: dict[str, float]

    @property
    def all(self) -> float:
        return sum(self.seconds.values())


def predicted(wanted: Sequence[Wanted]) -> Batch:
    counted = counts.decoded(wanted)
    trips = counts.trips(counted)
    work = counts.instructions(counted, trips)
    return Batch(counted, trips, work, counts.seconds(counted, trips, work))


def kernels(batch: Batch, crops: Batch) -> Table:
    """For one photo, on average: instructions and bytes of every kernel; of the batch: milliseconds."""
    columns = ("kernel", "million warp instructions, whole", "crop", "MB, whole", "crop", "ms a batch, whole", "crop")
    number, total, rows = len(batch.trips), np.zeros(6), []
    moved = [counts.traffic(each.counted) for each in (batch, crops)]
    for name in KERNELS:
        values = [float(each.work[name].mean()) / 1e6 for each in (batch, crops)]
        values += [float(each[name].sum()) / number / 1e6 for each in moved]
        values += [1000 * each.seconds[name] for each in (batch, crops)]
        total += values
        rows.append((f"`{name}`", *(f"{value:.2f}" for value in values)))
    rows.append(("all", *(f"{value:.2f}" for value in total)))
    return Table("", columns, rows)


def batches(named: dict[str, Sequence[Wanted]]) -> Table:
    columns = ("batch", "MB of files", "longest chain, symbols", "ms", "images/s", "with the fused pass, images/s")
    rows = []
    for name, wanted in named.items():
        batch, size = predicted(wanted), sum(len(each.data) for each in wanted)
        pixels = sum(each.box[2] * each.box[3] for each in wanted)
        whole = max(batch.all + EMIT * pixels / (224 * 224 * 2), size / UPLOAD)  # a crop has about 100,000 pixels
        rates = (f"{len(wanted) / batch.all:,.0f}", f"{len(wanted) / whole:,.0f}")
        rows.append((name, f"{size / 1e6:.1f}", f"{chain(batch.trips):,}", f"{1000 * batch.all:.2f}", *rates))
    return Table("", columns, rows)


def chain(trips: Trips) -> int:
    """Symbols that wait for each other, from the first kernel to the last."""
    return int(trips["later"]["longest"].max() + trips["joining"]["longest"].max() + trips["keeping"]["longest"].max())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.predict", description="Predict the decoder's speed.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of photos [made for the run]")
    parser.add_argument("--batch", type=at_least(1), default=512, metavar="N", help="[%(default)s]")
    args = parser.parse_args(argv)
    with folder(args.data) as (root, _):
        pictures = [photo for photo in photos(open_folder(root).files, args.batch) if is_plain(claim(photo.data))]
    whole = [decode.whole_file(photo.data) for photo in pictures]
    crops = [decode.train_crop(photo) for photo in pictures]
    large = decode.whole_file(decode.enlarged(pictures[0].data))
    middle = sorted(range(len(pictures)), key=lambda number: len(pictures[number].data))[len(pictures) // 2]
    named: dict[str, Sequence[Wanted]] = {
        f"{name}, {count} at once": list(islice(cycle(each), count))
        for name, each in (("photos", whole), ("crops", crops))
        for count in decode.BATCHES
        if 1 < count <= 2 * len(each)
    }
    named = {"a photo of middling size": whole[middle : middle + 1], "its crop": crops[middle : middle + 1], **named}
    named["12 megapixels, 1 at once"] = [large]
    named["12 megapixels, 8 at once"] = [large] * 8
    named |= {f"{name}, 12 megapixels": [decode.whole_file(decode.worst(name))] for name in decode.WORST}
    show(kernels(predicted(whole), predicted(crops)))
    show(batches(named))
    return 0


if __name__ == "__main__":
    sys.exit(main())
