"""The batches of kernel_plans.py through kernels built with AddressSanitizer and UBSan.

    python tests/plans_sanitized.py [--mistake NAME]

Everything between the pieces of memory that a program takes is forbidden to its kernels. Exit status 1: a result that
is not torchvision's; what the sanitizers find ends the process. 77: there are no sanitizers here. A mistake must be
found: it is made in the program, and the process should not end well.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import sanitizers

APART = 64  # bytes behind every piece


def guard_memory() -> None:
    from accel.backends.cuda import program
    from accel.backends.cuda.descriptors import offset_of
    from accel.backends.cuda.execute import Execution

    take, launch = program.Arena.take, Execution.launch

    def spaced(self: Any, size: int) -> int:
        where = take(self, size + APART)
        vars(self).setdefault("pieces", []).append((offset_of(where), size))
        return where

    def guarded(self: Any) -> None:
        regions = ((self._upload, self._program.upload), (self._scratch, self._program.scratch))
        for tensor, arena in regions:
            base = tensor.data_ptr()
            sanitizers.poison(base, base + len(tensor), True)
            for offset, size in vars(arena).get("pieces", []):
                sanitizers.poison(base + offset, base + offset + size, False)
        launch(self)
        for tensor, _ in regions:
            sanitizers.poison(tensor.data_ptr(), tensor.data_ptr() + len(tensor), False)

    program.Arena.take = spaced  # type: ignore[method-assign]
    Execution.launch = guarded  # type: ignore[method-assign]


def make(mistake: str | None) -> None:
    from accel.backends.cuda import passes, weights

    if mistake == "too little room for weights":
        weights.Job.most_taps = property(lambda job: 2)  # type: ignore[assignment, method-assign]
    if mistake == "a misaligned table":
        packed = passes._packed
        passes._packed = lambda *row: packed(*row[:3], row[3] and row[3] + 1, *row[4:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mistake")
    arguments = parser.parse_args()
    if not sanitizers.present():
        return sanitizers.run_again()
    import torch
    from cuda_support import on_device
    from kernel_plans import plans

    import accel

    sanitizers.build_kernels()
    guard_memory()
    make(arguments.mistake)
    wrong, count = [], 0
    for name, plan in plans().items():
        with accel.image_backend("torchvision"):
            expected = plan()
        count += 1
        if not torch.equal(on_device(plan), expected):
            wrong.append(name)
    print(f"{count} batches, {len(wrong)} wrong: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
