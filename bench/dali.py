"""``python -m bench.dali``: the dali backend beside a DALI pipeline written by hand, and beside the cpu backend.

Speed: file bytes in memory to normalised batches, with the same crops; contestants take turns, and each is checked
first. Differences: every op by DALI's operators (``exact=False``), on photos cut to 375 x 500, in levels of uint8.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import functional, testing
from accel.cli import harness, screen
from accel.cli.arguments import Red, at_least, command
from accel.cli.costs import Clock, Cost, ratio
from accel.cli.data import folder, open_folder
from accel.cli.error_stats import ErrorStats
from accel.cli.tables import Table, show
from bench import usage
from bench.contestants.contestant import Contestant
from bench.contestants.dali import DaliByHand
from bench.contestants.scripts import AccelCpu
from bench.job import Images, Job
from bench.machine import ROOT, provenance
from bench.measure import contestant, levels
from bench.ops.measure import cut, floats
from bench.ops.rows import OPS
from bench.pipelines import PIPELINES, Draw, Pipeline

HAND, DEFAULT, OURS = DaliByHand.title, "DALI by hand", "accel, dali, exact=False"
POOL = {"DALI_MALLOC_POOL_THRESHOLD": str(1 << 20)}
"""accel sets this for DALI, which reads it once in a process; by hand, nobody does."""
BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    OURS: ("dali", {"device": "cpu", "exact": False}),
    "accel, dali, exact=True": ("dali", {"device": "cpu"}),
    "accel, cpu": ("cpu", {}),
}
RESULT = ROOT / "bench" / "results" / "dali-cpu.json"


# -- speed --------------------------------------------------------------------------------------------------


class _FromMemory(AccelCpu):
    """torchvision's transforms on files' contents, under a backend."""

    def __init__(self, backend: str, options: dict[str, Any]) -> None:
        self._backend, self._options = backend, options

    def in_force(self, job: Job) -> AbstractContextManager[Any]:
        threads = {} if self._backend == "torchvision" else {"threads": job.threads}
        return accel.image_backend(self._backend, **self._options, **threads)

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        transform = pipeline.v1()
        return lambda data, draw: transform(functional.decode(data, "RGB"))


class _OwnProcess:
    """The pipeline by hand in a process of its own, with DALI's memory as it is by default."""

    def __init__(self, paths: Sequence[str], pipeline: str, threads: int) -> None:
        command = [sys.executable, "-m", "bench.dali", "--serve", pipeline, str(threads)]
        environment = {name: value for name, value in os.environ.items() if name not in POOL}
        self._process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._send("\t".join(os.path.abspath(path) for path in paths))

    def _send(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        return self._process.stdout.readline()

    def epoch(self, number: int) -> Cost:
        return Cost(*map(float, self._send(str(number + 1)).split()))

    def close(self) -> None:
        self._process.communicate()


def _serve(pipeline: str, threads: int) -> int:
    """The other side of ``_OwnProcess``: a line of files, then a line for each epoch, with its seed."""
    job = _job(sys.stdin.readline().rstrip("\n").split("\t"), pipeline, threads)
    with DaliByHand().open(job) as epoch:
        for seed in itertools.chain("0", sys.stdin):
            job.draws(int(seed))
            clock = Clock()
            for _batch in epoch(int(seed)):
                pass
            print(*clock.cost(), flush=True)
    return 0


def _job(paths: Sequence[str], pipeline: str, threads: int) -> Job:
    images = Images(files=paths, contents=[Path(path).read_bytes() for path in paths])
    return Job(PIPELINES[pipeline], images, range(len(paths)), min(50, len(paths)), threads)


def speed(paths: Sequence[str], pipeline: str, threads: int, rounds: int) -> dict[str, Any]:
    """Milliseconds an image of every contestant, on as many cores as threads.

    Raises:
        Red: a contestant's batches are not what it promises: torchvision's values, or, of DALI's two ways, that they
            are near those, and nearer each other, but for how they flip and where they decode.
    """
    job = _job(paths, pipeline, threads)
    with ExitStack() as stack:
        stack.enter_context(usage.pinned(threads))
        stack.enter_context(accel.image_backend("cpu"))  # torchvision is entered once, off the clock
        apart = _OwnProcess(paths, pipeline, threads)
        stack.callback(apart.close)

        def opened(name: str, who: Contestant, reference: harness.Contestant | None = None) -> harness.Contestant:
            return contestant(name, who, job, stack.enter_context(who.open(job)), reference)

        near, alike = (ErrorStats(levels(job.pipeline)) for _ in range(2))
        plain = opened("torchvision", _FromMemory("torchvision", {}))
        hand = opened(HAND, DaliByHand(), plain)
        hand.compare = partial(harness.compare, stats=near)
        ours = [opened(name, _FromMemory(*chosen), plain) for name, chosen in BACKENDS.items()]
        ours[0].reference, ours[0].compare = hand, partial(harness.compare, stats=alike)
        for difference in harness.check([plain, hand, *ours]).values():
            raise Red(difference)
        costs = {DEFAULT: list[Cost]()}
        beside = {DEFAULT: lambda number: costs[DEFAULT].append(apart.epoch(number))}
        harness.measure([plain, hand, *ours], rounds, beside=beside)
    if near.mean > 0.5 or alike.mean > 0.05 or alike.largest > 2.01:
        raise Red(f"by hand from torchvision: {near}; {OURS} from by hand: {alike}")
    costs |= {each.name: each.rounds for each in (hand, *ours)}
    cpu = {name: [cost.cpu_seconds for cost in some] for name, some in costs.items()}
    return {
        "pipeline": pipeline,
        "threads": threads,
        "images": len(paths),
        "contestants": {
            name: {
                "ms": 1e3 * median(cost.seconds for cost in some) / len(paths),
                "CPU ms": 1e3 * median(cpu[name]) / len(paths),
                "of by hand": ratio(cpu[DEFAULT], cpu[name]),
                "of by hand, pooled": ratio(cpu[HAND], cpu[name]),
                "rounds": [[1e3 * seconds / len(paths) for seconds in cost] for cost in some],
            }
            for name, some in costs.items()
        },
    }


# -- differences --------------------------------------------------------------------------------------------

MORE: dict[str, Callable[[Any], Any]] = {
    "decode": lambda image: image,
    "rotate, bilinear, onto black": lambda image: F.rotate(image, 13.0, F.InterpolationMode.BILINEAR),
    "resize, Lanczos": lambda image: F.resize(image, [256, 341], F.InterpolationMode.LANCZOS),
    "erase": lambda image: F.erase(F.to_tensor(image), 20, 30, 50, 60, torch.tensor([[[0.5]]] * 3)),
    "ImageNet train": lambda image: F.hflip(F.resized_crop(image, 40, 60, 270, 310, [224, 224])),
    "ImageNet eval": lambda image: F.center_crop(F.resize(image, 256), [224, 224]),
}


def differences(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Every op: by how much DALI's result differs from torchvision's, or why DALI does not run it."""
    images = [cut(path) for path in paths]
    return [_difference(name, op, images) for name, op in {**MORE, **OPS}.items()]


def _difference(name: str, op: Callable[[Any], Any], images: Sequence[Image.Image]) -> dict[str, Any]:
    stats, reason = ErrorStats(), None
    for image in images:
        with accel.image_backend("torchvision"):
            wanted = floats(op, image)
        with accel.image_backend("dali", device="cpu", exact=False, threads=1):
            lazy = floats(op, functional.decode(image))
            left = [line for line in accel.explain(lazy).splitlines() if "left to" in line]
            stats.add(wanted, testing.computed(lazy))
        reason = left[0].partition("images: ")[2] if left else None
    return {"op": name, "left": reason, **stats.as_data()}


# -- the command --------------------------------------------------------------------------------------------


@command("dali")
def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    torch.set_num_threads(1)
    if args.serve:
        return _serve(args.serve[0], int(args.serve[1]))
    os.environ.update(POOL)
    result: dict[str, Any] = {**provenance(), "settings": DaliByHand.settings}
    with folder(args.data) as (root, name):
        paths = list(open_folder(root).files[: args.images])
        result["data"] = {"name": name, "images": len(paths)}
        if args.rounds:
            runs = [(pipeline, threads) for pipeline in args.pipelines for threads in (1, 2)]
            result["speed"] = [speed(paths, *run, args.rounds) for run in runs]
            _show_speed(result["speed"])
        result["differences"] = differences(paths[:6])
        _show_differences(result["differences"])
    screen.write_json(args.out, result)
    return 0


def _show_speed(found: Sequence[dict[str, Any]]) -> None:
    figures = ("ms/image", "CPU ms/image", "CPU, of DALI by hand", "of it with pooled memory")
    rows = [
        (
            *(name, run["pipeline"], str(run["threads"]), f"{row['ms']:.3f}", f"{row['CPU ms']:.3f}"),
            *(f"{row['of by hand']:.2f}", f"{row['of by hand, pooled']:.2f}"),
        )
        for run in found
        for name, row in run["contestants"].items()
    ]
    show(Table("", ("", "pipeline", "threads", *figures), rows, text=2))


def _show_differences(found: Sequence[dict[str, Any]]) -> None:
    rows = []
    for row in found:
        said = f"none: {row['left']}" if row["left"] else "equal" if row["max"] < 0.5 else "differs"
        figures = ("0",) * 3 if said == "equal" else ("",) * 3
        if said == "differs":
            figures = (f"{row['share that differs']:.2%}", f"{row['mean']:.3f}", f"{row['max']:.1f}")
        rows.append((row["op"], said, *figures))
    show(Table("", ("op", "DALI's result", "values that differ", "on average", "at most"), rows, text=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.dali", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of images [made for the run]")
    parser.add_argument("--images", type=at_least(1), default=100, metavar="N", help="how many [%(default)s]")
    parser.add_argument("--pipelines", nargs="+", choices=("train", "eval"), default=["train", "eval"])
    parser.add_argument("--rounds", type=at_least(0), default=7, metavar="N", help="in turns; 0: none [%(default)s]")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULT, metavar="FILE", help="the result file [%(default)s]")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
