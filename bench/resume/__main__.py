"""Exact resume: random resumes, and generators of the user's, compared with the runs that went through.

    python -m bench.resume [--resumes N] [--out FILE]

- Random cases (``cases.py``) of dataset, sampler, batch size, workers and how they are started, persistent workers,
  pinning, and one to five kills. The run that goes through is compared with torchvision's, and the one that is killed
  and goes on with it: tensors, labels, and the random states behind every step.
- Generators planted in dataset, sampler and collate function, of four kinds, in 50 cases.
- Two ranks: random cases with ``DistributedSampler`` in two processes, whose steps gather with gloo.

``python -m bench.resume.times`` measures.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from accel.cli import samples, screen
from accel.cli.arguments import at_least, command
from bench.machine import RESULTS, write
from bench.resume import shares

_SHARE, _RANKED = 20, 50
"""How many resumes are a share, and how many are made by each of two ranks."""


def _files(place: Path) -> Path:
    """A folder of 26 small files in two classes."""
    for number in range(26):
        path = place / f"class{number % 2}" / f"{number:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        samples.picture(number, (60 + number, 50 + number % 5)).save(path, quality=88)
    return place


@command("resume")
def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.resume", description=str(__doc__).partition("\n")[0])
    options.add_argument("--resumes", type=at_least(1), default=1000, metavar="N", help="random ones [%(default)s]")
    options.add_argument("--out", type=Path, default=RESULTS / "resume.json", metavar="FILE")
    args = options.parse_args()
    parts: dict[str, tuple[Callable[[int, Path, int], Counter[str]], int, int]] = {
        "random": (shares.of_random, -(-args.resumes // _SHARE), min(args.resumes, _SHARE)),
        "planted": (shares.of_planted, 5, shares.PLANTED // 5),
        "two ranks": (shares.of_rank, 2, _RANKED),
    }
    result = {}
    with (
        tempfile.TemporaryDirectory(prefix="accel-resume-") as place,
        ProcessPoolExecutor(max(2, os.cpu_count() or 1), get_context("spawn"), shares.begin) as pool,
        screen.Bar("shares", sum(count for _, count, _ in parts.values())) as bar,
    ):
        root = _files(Path(place))
        for name, (function, count, size) in parts.items():
            found = Counter[str]()
            for share in as_completed([pool.submit(function, number, root, size) for number in range(count)]):
                if share.exception() is not None:
                    pool.shutdown(cancel_futures=True)
                found += share.result()
                bar.advance(1)
            result[name] = dict(found)
    write(args.out, {"load": os.getloadavg(), **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
