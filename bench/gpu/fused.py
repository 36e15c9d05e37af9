"""``python -m bench.gpu.fused``: a prediction for the fused pass (``emit3``) on a GPU, from instructions and bytes.

Instructions are those that NVRTC makes of the kernel for sm_90 (``sass.py``), times how often the warps of every tile
run them for the crops of the train pipeline. ``counts.py`` says what is assumed of the GPU, and ``python -m bench.gpu
--only emit`` measures the same.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda.descriptors import THREADS, TILE
from accel.cli.arguments import at_least
from accel.cli.data import folder, open_folder
from bench.gpu import counts, sass
from bench.gpu.setting import SIZE, Photo, photos

DEPTH, WARPS, ACROSS = 64, THREADS // 32, 2  # as in emit.cu
LOOKING = 2  # warps of a block that look at the tile's positions
ROWS = TILE // WARPS  # of a tile, for each warp
COPIES = 3  # of the body of a loop that is unrolled twice: two, and what is left over

Integers = npt.NDArray[np.int64]


class Costs(NamedTuple):
    """Instructions of a warp: of a tile, of a step along the second sums' input, and of what is repeated in a step."""

    tile: float
    step: float
    line: float  # of the first sums
    first_tap: float
    second_tap: float


def costs() -> Costs:
    """Those of a pass that resamples columns first, to float32."""
    code = sass.kernels("emit")["emit3"]

    def lines(first: str, last: str | None = None) -> tuple[str, range]:
        return sass.lines("emit.cu", first, last)

    passes = [lines(f"if (stage.mode == {order}_FIRST) resample") for order in ("COLUMNS", "ROWS")]
    resampled = code.only(passes[0])
    first = resampled.only(lines("{ first_sums<C, BY_ROWS>(stage"))
    second = resampled.only(lines("{ second_sums<C, BY_ROWS>(b, of_b"))
    line = lines("for (int k = row; k < DEPTH && k < inputs; k += APART * ACROSS) {", "        }")
    first_tap = lines("TWICE for (int tap = line.taps", "    }")
    second_tap = lines("TWICE for (int k = start; k < stop; ++k)", "        }")
    other_types = [lines(text) for text in ("case 1: write<C>", "case 2: write<C>", "default: write<C>")]
    filled = lines("if (stage.mode == COPY || stage.fills)", "looked_up<C>(done[i], reinterpret_cast")
    looked = lines("if (t < TILE) look(stage.rows", "else if (t < 2 * TILE) look(stage.columns")
    tile = code.but(*passes, *other_types, filled).all + resampled.all - first.all - second.all
    return Costs(
        tile - code.within(looked) * (1 - LOOKING / WARPS),
        first.but(line).all + second.but(second_tap).all,
        first.only(line).but(first_tap).all,
        first.within(first_tap) / COPIES,
        second.within(second_tap) / COPIES / ROWS,
    )


def bounds(length: int, size: int = SIZE) -> tuple[Integers, Integers]:
    """The first tap and the number of taps of every position, bilinear (Pillow, precompute_coeffs)."""
    scale = length / size
    centres, support = (np.arange(size) + 0.5) * scale, max(scale, 1.0)
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    return first, np.minimum((centres + support + 0.5).astype(np.int64), length) - first


def instructions(cost: Costs, height: int, width: int) -> float:
    """Million warp instructions for one crop of a photo."""
    _, across = bounds(width)
    first, taps = bounds(height)
    total = 0.0
    for top in range(0, SIZE, TILE):
        shown = slice(top, top + TILE)
        low, high = int(first[shown].min()), int((first + taps)[shown].max())
        steps = math.ceil((high - low) / DEPTH)
        lines = sum(
            max(math.ceil((min(DEPTH, high - start) - row) / (WARPS * ACROSS)), 0)
            for start in range(low, high, DEPTH)
            for row in range(WARPS)
        )
        of_rows = WARPS * (cost.tile + steps * cost.step) + int(taps[shown].sum()) * cost.second_tap + lines * cost.line
        for left in range(0, SIZE, TILE):
            total += of_rows + lines * int(across[left : left + TILE].max()) * cost.first_tap
    return total / 1e6


def moved(height: int, width: int) -> int:
    """Bytes that must be read and written: the crop, and float32 values."""
    return 3 * height * width + 3 * SIZE * SIZE * 4


def predicted(batch: Sequence[Photo]) -> tuple[float, float]:
    """Of a photo, on average: million warp instructions and bytes."""
    cost = costs()
    crops = [photo.draw.box[2:] for photo in batch if photo.draw.box is not None]
    work = [instructions(cost, *crop) for crop in crops]
    return sum(work) / len(crops), sum(moved(*crop) for crop in crops) / len(crops)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.fused", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of photos [made for the run]")
    parser.add_argument("--batch", type=at_least(1), default=512, metavar="N", help="[%(default)s]")
    args = parser.parse_args(argv)
    with folder(args.data) as (root, _):
        work, size = predicted(photos(open_folder(root).files, args.batch))
    rate = counts.MULTIPROCESSORS * counts.SCHEDULERS * counts.HERTZ
    copied = size * args.batch / counts.BANDWIDTH
    print(f"{work:.3f} million warp instructions and {size / 1e6:.2f} MB a photo; a copy: {1e3 * copied:.2f} ms")
    for share in (counts.ISSUED, 0.6, 0.8):
        computed = work * 1e6 * args.batch / (rate * share)
        print(f"{share:.0%} issued: {1e3 * computed:.2f} ms a batch, {min(copied / computed, 1):.0%} of a copy")
    return 0


if __name__ == "__main__":
    sys.exit(main())
