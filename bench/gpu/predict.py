"""``python -m bench.gpu.predict``: predictions for the JPEG decoder on a GPU, as tables in Markdown.

What is counted is in ``counts.py``, what is assumed in ``gpus.py``. ``python -m bench.gpu --only decode`` measures the
same, for the columns that are empty here.
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
from bench.gpu import counts, decode, fused, gpus
from bench.gpu.setting import photos

Trips = np.ndarray


class Batch(NamedTuple):
    """A batch, what was counted of it, and how long the kernels are predicted to take: at least, and at most."""

    counted: counts.Counted
    trips: Trips
    work: dict[str, gpus.Floats]
    seconds: dict[str, dict[str, gpus.Range]]

    def all(self, gpu: str) -> gpus.Range:
        return sum(self.seconds[gpu].values(), np.zeros(2))


def predicted(wanted: Sequence[Wanted]) -> Batch:
    counted = counts.decoded(wanted)
    trips = counts.trips(counted)
    work, moved, chains = counts.instructions(counted, trips), counts.traffic(counted), counts.chains(counted, trips)

    def seconds(gpu: gpus.Gpu, name: str) -> gpus.Range:
        blocks = int(counted.batch.blocks[name].sum())
        return gpus.seconds(gpu, work[name].sum(0), name, blocks, float(moved[name].sum()), chains.get(name))

    found = {name: {kernel: seconds(gpu, kernel) for kernel in KERNELS} for name, gpu in gpus.GPUS.items()}
    return Batch(counted, trips, work, found)


def mixes(crops: Batch, pass3: fused.Predicted) -> Table:
    """For one crop, on average: a thousand instructions by pipe, what is busy longest, and warps of a scheduler."""
    rows = []
    for name in (*KERNELS, fused.KERNEL):
        work = pass3.code if name == fused.KERNEL else crops.work[name].mean(0)
        values = [f"{value / 1e3:.1f}" for value in (work.sum(), *gpus.pipes(work))]
        warps = gpus.resident(name) * gpus.WARPS // gpus.SCHEDULERS
        rows.append((f"`{name}`", *values, gpus.bound(work), f"{warps}"))
    return Table("", ("kernel", "all", *gpus.PIPES, "busiest", "warps"), rows)


def kernels(batch: Batch, crops: Batch) -> Table:
    """For one photo, on average: instructions and bytes of every kernel; of the batch: milliseconds."""
    titles = [f"ms a batch, {gpu}, {what}" for gpu in gpus.GPUS for what in ("whole", "crops")]
    columns = ("kernel", "million warp instructions, whole", "crop", "MB, whole", "crop", *titles, "measured")
    total, rows = np.zeros(4), []
    moved = [counts.traffic(each.counted) for each in (batch, crops)]
    for name in KERNELS:
        values = np.array([each.work[name].sum(1).mean() for each in (batch, crops)] + [m[name].mean() for m in moved])
        times = [each.seconds[gpu][name] for gpu in gpus.GPUS for each in (batch, crops)]
        total += values / 1e6
        rows.append((f"`{name}`", *(f"{value / 1e6:.2f}" for value in values), *map(milliseconds, times), ""))
    times = [each.all(gpu) for gpu in gpus.GPUS for each in (batch, crops)]
    rows.append(("all", *(f"{value:.2f}" for value in total), *map(milliseconds, times), ""))
    return Table("", columns, rows)


def batches(named: dict[str, Sequence[Wanted]], pass3: fused.Predicted) -> Table:
    """Batches alone, from files in pinned memory to pixels; and one after the other, where copies overlap."""
    titles = [f"{what}, {gpu}" for gpu in gpus.GPUS for what in ("kernels, ms", "a batch alone, ms", "images/s")]
    rows = []
    for name, wanted in named.items():
        batch, size = predicted(wanted), sum(len(each.data) for each in wanted)
        photos = sum(each.box[2] * each.box[3] for each in wanted) / (224 * 224 * 2)  # a crop has about 100,000 pixels
        cells: list[str] = []
        for gpu in gpus.GPUS:
            decoding = batch.all(gpu)
            whole, upload = decoding + pass3.seconds(gpus.GPUS[gpu], photos), size / gpus.UPLOAD
            rates = len(wanted) / np.maximum(whole, upload)
            cells += [milliseconds(decoding), milliseconds(whole + upload), f"{rates[1]:,.0f} to {rates[0]:,.0f}"]
        rows.append((name, f"{size / 1e6:.1f}", f"{chain(batch.trips):,}", *cells, ""))
    return Table("", ("batch", "MB of files", "longest chain, symbols", *titles, "measured"), rows)


def milliseconds(seconds: gpus.Range) -> str:
    low, high = 1000 * seconds
    return f"{low:.2f} to {high:.2f}"


def chain(trips: Trips) -> int:
    """Symbols that wait for each other, from the first kernel to the last."""
    return int(trips["later"]["longest"].max() + trips["joining"]["longest"].max() + trips["keeping"]["longest"].max())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.predict", description="Predict the decoder's speed.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of photos [made for the run]")
    parser.add_argument("--batch", type=at_least(1), default=512, metavar="N", help="[%(default)s]")
    parser.add_argument("--fused", type=at_least(1), default=16, metavar="N", help="photos for pass3 [%(default)s]")
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
    pass3, batch = fused.predicted(pictures[: args.fused]), predicted(crops)
    show(mixes(batch, pass3))
    show(kernels(predicted(whole), batch))
    show(batches(named, pass3))
    return 0


if __name__ == "__main__":
    sys.exit(main())
