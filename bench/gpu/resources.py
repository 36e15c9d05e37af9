"""``python -m bench.gpu.resources``: what every kernel takes of a multiprocessor, by NVRTC; needs no GPU.

Writes results/kernels.json and prints its table; ``python -m bench figures`` puts it into docs/kernels.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accel.backends.cuda import compile
from accel.backends.cuda.descriptors import THREADS
from accel.cli import screen
from accel.cli.tables import Table, show
from bench.gpu import gpus
from bench.machine import ROOT, provenance


def measure() -> dict[str, dict[str, dict[str, int]]]:
    """Registers, bytes spilled, bytes of shared memory and resident blocks of every kernel on every architecture."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for unit in compile.UNITS:
        for arch in gpus.SHARED:
            for usage in compile.build(unit, arch)[1]:
                found.setdefault(usage.kernel, {})[arch] = {
                    "registers": usage.registers,
                    "spilled": usage.spilled,
                    "shared": usage.shared,
                    "blocks": gpus.blocks_at_once(arch, usage.registers, usage.shared),
                }
    return found


def table(found: dict[str, dict[str, dict[str, int]]]) -> Table:
    """The kernels, with the architectures' figures side by side if they differ."""
    columns = ("kernel", f"registers ({', '.join(gpus.SHARED)})", "spilled", "shared memory, bytes", "blocks at once")
    rows = []
    for kernel, each in found.items():
        cells = [_cell([of[what] for of in each.values()]) for what in ("registers", "spilled", "shared", "blocks")]
        rows.append((f"`{kernel}`", *cells))
    return Table("", columns, rows)


def _cell(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if len(set(values)) == 1 else ", ".join(f"{value:,}" for value in values)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.resources", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "kernels.json", metavar="FILE")
    args = parser.parse_args(argv)
    found = measure()
    result: dict[str, Any] = {**provenance(), "threads of a block": THREADS, "kernels": found}
    screen.write_json(args.out, result)
    show(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
