"""``python -m bench.dali``: the dali backend beside a DALI pipeline written by hand, and beside the cpu backend.

Speed: file bytes in memory to normalised batches, with the same crops; contestants take turns, and each is checked
first. Differences: every op by DALI's operators (``exact=False``), on photos cut to 375 x 500, in levels of uint8.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F

import accel
from accel import functional, testing
from accel.cli import screen
from accel.cli.arguments import at_least
from accel.cli.data import folder, open_folder
from accel.cli.error_stats import ErrorStats
from accel.cli.harness import Cost, ratio, take_turns
from accel.cli.tables import Table, show
from bench import usage
from bench.contestants import dali as by_hand
from bench.job import Images, Job
from bench.machine import ROOT, provenance
from bench.measure import levels
from bench.ops.measure import cut
from bench.ops.rows import OPS
from bench.pipelines import PIPELINES

Epoch = Callable[[], Iterator[torch.Tensor]]
HAND, DEFAULT, OURS = "DALI by hand, pooled memory", "DALI by hand", "accel, dali, exact=False"
POOL = {"DALI_MALLOC_POOL_THRESHOLD": str(1 << 20)}
"""accel sets this for DALI, which reads it once in a process; by hand, nobody does."""
BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    OURS: ("dali", {"device": "cpu", "exact": False}),
    "accel, dali, exact=True": ("dali", {"device": "cpu"}),
    "accel, cpu": ("cpu", {}),
}
RESULT = ROOT / "bench" / "results" / "dali-cpu.json"


# -- speed --------------------------------------------------------------------------------------------------


def _by_hand(job: Job, files: list[bytes]) -> Epoch:
    pipeline = by_hand.build(job, by_hand.Source(job, files))
    pipeline.build()

    def epoch() -> Iterator[torch.Tensor]:
        while True:
            try:
                (outputs,) = pipeline.run()
            except StopIteration:
                pipeline.reset()
                return
            yield torch.utils.dlpack.from_dlpack(outputs.as_tensor())

    return epoch


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
        return Cost(*map(float, self._send("go").split()))

    def close(self) -> None:
        self._process.communicate()


def _serve(pipeline: str, threads: int) -> int:
    """The other side of ``_OwnProcess``: a line of files, then a line for each epoch."""
    paths = sys.stdin.readline().rstrip("\n").split("\t")
    epoch = _by_hand(*_job(paths, pipeline, threads))
    print(*_timed(epoch), flush=True)
    for _line in sys.stdin:
        print(*_timed(epoch), flush=True)
    return 0


def _timed(epoch: Epoch, number: int = 0) -> Cost:
    seconds, cpu = time.perf_counter(), time.process_time()
    for _batch in epoch():
        pass
    return Cost(time.perf_counter() - seconds, time.process_time() - cpu)


def _job(paths: Sequence[str], pipeline: str, threads: int) -> tuple[Job, list[bytes]]:
    job = Job(PIPELINES[pipeline], Images(files=paths), range(len(paths)), min(50, len(paths)), threads)
    torch.set_num_threads(1)
    return job, [Path(path).read_bytes() for path in paths]


def _by_accel(job: Job, files: list[bytes], backend: str, options: dict[str, Any]) -> Epoch:
    transform = job.pipeline.v1()

    def epoch() -> Iterator[torch.Tensor]:
        with accel.image_backend(backend, **options, **({} if backend == "torchvision" else {"threads": job.threads})):
            torch.manual_seed(0)  # the draws are those of the pipeline by hand
            for first in range(0, len(files), job.batch_size):
                batch = [transform(functional.decode(data, "RGB")) for data in files[first : first + job.batch_size]]
                yield torch.stack(batch).to("cpu")

    return epoch


def speed(paths: Sequence[str], pipeline: str, threads: int, rounds: int) -> dict[str, Any]:
    """Milliseconds an image of every contestant, on as many cores as threads.

    Raises:
        AssertionError: a contestant's batches are not what it promises.
    """
    job, files = _job(paths, pipeline, threads)
    with usage.pinned(threads), accel.image_backend("cpu"):  # torchvision is entered once, off the clock
        apart = _OwnProcess(paths, pipeline, threads)
        epochs = {HAND: _by_hand(job, files)}
        epochs |= {name: _by_accel(job, files, *chosen) for name, chosen in BACKENDS.items()}
        _check(job, files, epochs)
        turns: dict[str, Callable[[int], Cost]] = {DEFAULT: apart.epoch}
        turns |= {name: partial(_timed, epoch) for name, epoch in epochs.items()}
        spent = {
            name: [(1e3 * cost.seconds / len(files), 1e3 * cost.cpu_seconds / len(files)) for cost in costs]
            for name, costs in take_turns(turns, rounds).items()
        }
        apart.close()
    return {
        "pipeline": pipeline,
        "threads": threads,
        "images": len(files),
        "contestants": {
            name: {
                "ms": median(wall for wall, _ in taken),
                "CPU ms": median(cpu for _, cpu in taken),
                "of by hand": ratio((cpu for _, cpu in spent[DEFAULT]), (cpu for _, cpu in taken)),
                "of by hand, pooled": ratio((cpu for _, cpu in spent[HAND]), (cpu for _, cpu in taken)),
                "rounds": taken,
            }
            for name, taken in spent.items()
        },
    }


def _check(job: Job, files: list[bytes], epochs: dict[str, Epoch]) -> None:
    """Exact contestants equal torchvision; DALI's two ways are alike, but for how they flip and where they decode."""
    level = levels(job.pipeline)
    wanted = list(_by_accel(job, files, "torchvision", {})())
    found = {name: [batch.clone() for batch in epoch()] for name, epoch in epochs.items()}
    for name, batches in found.items():
        assert len(batches) == len(wanted), name
        for number, (batch, right) in enumerate(zip(batches, wanted, strict=True)):
            if name not in (HAND, OURS):
                assert torch.equal(batch, right), f"{name} differs from torchvision in batch {number}"
            else:
                apart = (batch - found[HAND][number]).abs() * level
                assert apart.max() < 2.01, f"{name}: {apart.max():g} levels from the pipeline by hand"
                assert apart.mean() < 0.05, f"{name}: {apart.mean():g} levels from the pipeline by hand, on average"
                assert ((batch - right).abs() * level).mean() < 0.5, f"{name} is not near torchvision"


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
            wanted = _floats(op(image))
        with accel.image_backend("dali", device="cpu", exact=False, threads=1):
            lazy = _floats(op(functional.decode(image)))
            left = [line for line in accel.explain(lazy).splitlines() if "left to" in line]
            stats.add(wanted, testing.computed(lazy))
        reason = left[0].partition("images: ")[2] if left else None
    return {
        "op": name,
        "left": reason,
        "largest": round(stats.largest, 1),
        "mean": stats.mean,
        "share": stats.share,
    }


def _floats(image: Any) -> Any:
    return image if isinstance(image, torch.Tensor) else T.ToTensor()(image)


# -- the command --------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.serve:
        return _serve(args.serve[0], int(args.serve[1]))
    os.environ.update(POOL)
    result: dict[str, Any] = {**provenance(), "settings": by_hand.Dali.settings}
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
    columns = (
        "",
        "pipeline",
        "threads",
        "ms/image",
        "CPU ms/image",
        "CPU, of DALI by hand",
        "of it with pooled memory",
    )
    rows = [
        (
            *(name, run["pipeline"], str(run["threads"]), f"{row['ms']:.3f}", f"{row['CPU ms']:.3f}"),
            *(f"{row['of by hand']:.2f}", f"{row['of by hand, pooled']:.2f}"),
        )
        for run in found
        for name, row in run["contestants"].items()
    ]
    show(Table("", columns, rows, text=2))


def _show_differences(found: Sequence[dict[str, Any]]) -> None:
    rows = []
    for row in found:
        if row["left"]:
            rows.append((row["op"], f"none: {row['left']}", "", "", ""))
        elif row["largest"] < 0.5:
            rows.append((row["op"], "equal", "0", "0", "0"))
        else:
            rows.append(
                (row["op"], "differs", f"{row['share']:.2%}", f"{row['mean']:.3f}", f"{row['largest']:g}"),
            )
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
