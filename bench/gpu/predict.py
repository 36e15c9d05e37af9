"""``python -m bench.gpu.predict``: predictions for the JPEG decoder and the fused pass, as tables in Markdown.

Counts are in ``counts.py``, assumptions in ``gpus.py``. ``python -m bench.gpu`` measures the same (``decode`` and
``emit``), for the columns that are empty here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from accel.backends.cuda import backend
from accel.backends.cuda.jpeg import Request
from accel.backends.cuda.jpeg.batch_fields import LAUNCHES
from accel.backends.cuda.jpeg.requests import can_decode
from accel.cli.arguments import at_least
from accel.cli.data import folder, open_folder
from accel.cli.tables import Table, show
from accel.codec.header import claim
from bench.gpu import counts, decode, fused, gpus
from bench.gpu.setting import photos
from rig.ptx.device import program

Trips = np.ndarray


class Batch(NamedTuple):
    """A batch, its counts, and the predicted least and most times of the kernels.

    Attributes:
        together: the least time of all kernels, if other batches' kernels run while a long chain of this one ends.
    """

    counted: counts.Counted
    trips: Trips
    work: dict[str, gpus.Floats]
    seconds: dict[str, dict[str, gpus.Range]]
    together: dict[str, float]

    def all(self, gpu: str) -> gpus.Range:
        return sum(self.seconds[gpu].values(), np.zeros(2))


def predicted(wanted: Sequence[Request]) -> Batch:
    counted = counts.decoded(wanted)
    trips = counts.trips(counted)
    work, moved, chains = counts.instructions(counted, trips), counts.traffic(counted), counts.chains(counted, trips)

    def seconds(gpu: gpus.Gpu, name: str, chain: gpus.Floats | None = None) -> gpus.Range:
        blocks = int(counted.batch.blocks[name].sum())
        if blocks == 0:  # it is not launched
            return np.zeros(2)
        return gpus.seconds(gpu, work[name].sum(0), name, blocks, float(moved[name].sum()), chain)

    alone = {name: {each: seconds(gpu, each, chains.get(each)) for each in LAUNCHES} for name, gpu in gpus.GPUS.items()}
    together = {name: sum(float(seconds(gpu, each)[0]) for each in LAUNCHES) for name, gpu in gpus.GPUS.items()}
    return Batch(counted, trips, work, alone, together)


def mixes(first: Batch, later: Batch, pass3: fused.Predicted) -> Table:
    """Means for a crop: thousands of instructions by pipe, the busiest pipe, and warps of a scheduler.

    For the kernels that make an index, from ``first``, and for those that use one, from ``later``.
    """
    rows = []
    for name in (*LAUNCHES, fused.KERNEL):
        batch = later if name == "jpeg_segments" else first
        work = pass3.code if name == fused.KERNEL else batch.work[name].mean(0)
        values = [f"{value / 1e3:.1f}" for value in (work.sum(), *gpus.pipes(work))]
        warps = gpus.resident(name) * gpus.WARPS // gpus.SCHEDULERS
        rows.append((f"`{name}`", *values, gpus.bound(work), f"{warps}"))
    return Table("", ("kernel", "all", *gpus.PIPES, "busiest", "warps"), rows)


def kernels(named: dict[str, Batch], pass3: fused.Predicted) -> Table:
    """Mean instructions and bytes of every kernel for a photo, and milliseconds for the batch.

    ``named``: whole photos, then crops in several ways.
    """
    titles = [f"ms a batch, {gpu}, {what}" for gpu in gpus.GPUS for what in named]
    figures = [f"{unit}, {what}" for unit in ("million warp instructions", "MB") for what in named]
    total, rows = np.zeros(2 * len(named)), []
    moved = [counts.traffic(each.counted) for each in named.values()]
    for name in LAUNCHES:
        work = [each.work[name].sum(1).mean() for each in named.values()]
        values = np.array(work + [each[name].mean() for each in moved])
        times = [each.seconds[gpu][name] for gpu in gpus.GPUS for each in named.values()]
        total += values / 1e6
        rows.append((f"`{name}`", *(f"{value / 1e6:.2f}" for value in values), *map(milliseconds, times), ""))
    times = [each.all(gpu) for gpu in gpus.GPUS for each in named.values()]
    rows.append(("all", *(f"{value:.2f}" for value in total), *map(milliseconds, times), ""))
    crops = [""] + ["{}"] * (len(named) - 1)
    row = [cell.format(f"{value / 1e6:.2f}") for value in (pass3.code.sum(), pass3.moved) for cell in crops]
    for gpu in gpus.GPUS.values():
        row += [cell.format(milliseconds(pass3.seconds(gpu, len(next(iter(named.values())).trips)))) for cell in crops]
    return Table("", ("kernel", *figures, *titles, "measured"), [*rows, (f"`{fused.KERNEL}`", *row, "")])


def batches(named: dict[str, Sequence[Request]], pass3: fused.Predicted) -> Table:
    """Batches alone, from files in pinned memory to values; and many, whose copies and ends of chains overlap."""
    titles = [f"{what}, {gpu}" for gpu in gpus.GPUS for what in ("kernels, ms", "a batch alone, ms", "images/s")]
    rows = []
    for name, wanted in named.items():
        batch = predicted(wanted)
        size = int(batch.counted.batch.pictures["size"].astype(np.int64).sum())  # bytes of files that are sent
        photos = sum(each.box[2] * each.box[3] for each in wanted) / (224 * 224 * 2)  # a crop has about 100,000 pixels
        cells: list[str] = []
        for gpu in gpus.GPUS:
            decoding = batch.all(gpu)
            emit, upload = pass3.seconds(gpus.GPUS[gpu], photos), size / gpus.UPLOAD
            rates = len(wanted) / np.maximum(np.array([batch.together[gpu], decoding[1]]) + emit, upload)
            alone = milliseconds(upload + decoding + emit)
            cells += [milliseconds(decoding), alone, f"{rates[1]:,.0f} to {rates[0]:,.0f}"]
        rows.append((name, f"{size / 1e6:.1f}", f"{chain(batch.trips):,}", *cells, ""))
    return Table("", ("batch", "MB of files", "longest chain, symbols", *titles, "measured"), rows)


def milliseconds(seconds: gpus.Range) -> str:
    low, high = 1000 * seconds
    return f"{low:.2f} to {high:.2f}"


def chain(trips: Trips) -> int:
    """The number of symbols that depend on each other, from the first kernel to the last."""
    steps = [trips[name]["longest"].max() for name in ("later", "joining", "keeping", "segments")]
    return int(sum(steps))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.predict", description="Predict the speed on a GPU.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of photos [made for the run]")
    parser.add_argument("--batch", type=at_least(1), default=512, metavar="N", help="[%(default)s]")
    parser.add_argument("--fused", type=at_least(1), default=16, metavar="N", help="photos for pass3 [%(default)s]")
    parser.add_argument("--lines", type=at_least(0), default=0, metavar="N", help="of pass3, those that run most")
    args = parser.parse_args(argv)
    with folder(args.data) as (root, _):
        pictures = [photo for photo in photos(open_folder(root).files, args.batch) if can_decode(claim(photo.data))]
    whole = [decode.whole_file(photo.data) for photo in pictures]
    crops = [decode.train_crop(photo) for photo in pictures]
    first = [each._replace(known=np.zeros(0, np.uint8)) for each in crops]
    later = decode.indexed(backend._Engine(torch.device("cpu")).jpeg, crops)
    large = decode.whole_file(decode.enlarged(pictures[0].data))
    middle = sorted(range(len(pictures)), key=lambda number: len(pictures[number].data))[len(pictures) // 2]
    named: dict[str, Sequence[Request]] = {
        f"{name}, {count} at once": list(islice(cycle(each), count))
        for name, each in (("photos", whole), ("crops", crops), ("crops by indexes", later))
        for count in decode.BATCHES
        if 1 < count <= 2 * len(each)
    }
    named = {"a photo of middling size": whole[middle : middle + 1], "its crop": crops[middle : middle + 1], **named}
    named["its crop, by its index"] = later[middle : middle + 1]
    named["12 megapixels, 1 at once"] = [large]
    named["12 megapixels, 8 at once"] = [large] * 8
    named |= {f"{name}, 12 megapixels": [decode.whole_file(decode.worst(name))] for name in decode.WORST}
    pass3 = fused.predicted(pictures[: args.fused])
    ways = {"whole": whole, "crop": crops, "its index made": first, "by its index": later}
    predictions = {name: predicted(each) for name, each in ways.items()}
    show(mixes(predictions["its index made"], predictions["by its index"], pass3))
    show(kernels(predictions, pass3))
    show(batches(named, pass3))
    lines = program(fused.KERNEL).by_line()
    for (file, line), ran in lines.most_common(args.lines):
        print(f"{file}:{line:<5} {ran / lines.total():6.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
