"""``python -m bench.dali``: the dali backend beside a DALI pipeline written by hand, and beside the cpu backend.

Speed: file bytes in memory to normalised batches, with the same crops; contestants take turns, and each is checked
first. Differences: every op by DALI's operators (``exact=False``), on photos cut to 375 x 500, in levels of uint8.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import functional, testing
from accel.cli.arguments import Red, command
from accel.cli.costs import Clock, Cost, ratio
from accel.cli.data import folder, open_folder
from accel.cli.error_stats import ErrorStats
from accel.cli.harness import TensorBatch
from accel.cli.tables import Table, show
from accel.lazy.submit import Future
from bench import usage
from bench.contestants.contestant import Epoch
from bench.contestants.dali import DaliByHand
from bench.contestants.scripts import AccelCpu
from bench.machine import parser, write
from bench.measure import Entry, take_turns
from bench.ops.measure import cut, floats
from bench.ops.rows import OPS
from bench.pipelines import PIPELINES, Draw, Images, Job, Pipeline
from bench.tables import filled

HAND, DEFAULT, OURS = DaliByHand.title, "DALI by hand", "accel, dali, exact=False"
AHEAD, DEPTH = f"{OURS}, two batches ahead", 2
POOL = "DALI_MALLOC_POOL_THRESHOLD"
"""A variable that accel sets for DALI, which reads it once in a process; a script written by hand does not set it."""


# -- speed --------------------------------------------------------------------------------------------------


class _FromMemory(AccelCpu):
    """torchvision's transforms on files' contents, under a backend."""

    def __init__(self, backend: str, **options: Any) -> None:
        self._backend, self._options = backend, options

    def in_force(self, job: Job) -> AbstractContextManager[Any]:
        threads = {} if self._backend == "torchvision" else {"threads": job.threads}
        return accel.image_backend(self._backend, **self._options, **threads)

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        transform = pipeline.v1()
        return lambda data, draw: transform(functional.decode(data, "RGB"))


class _Inexact(_FromMemory):
    exact = False


class _Ahead(_Inexact):
    """Batches are submitted before they are used, as a DataLoader with ``pin_memory=True`` does it on a GPU."""

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        with super().open(job) as epoch:

            def ahead(seed: int) -> Iterator[torch.Tensor]:
                queued = deque[Future]()
                for batch in epoch(seed):
                    queued.append(accel.submit(batch))
                    if len(queued) > DEPTH:
                        yield queued.popleft().result()
                while queued:
                    yield queued.popleft().result()

            yield ahead

    def finish(self, batch: TensorBatch) -> TensorBatch:
        return batch


Case = tuple[tuple[str, ...], str, int]
"""Files, a pipeline's name, threads."""


def _job(case: Case) -> Job:
    paths, pipeline, threads = case
    images = Images(files=paths, contents=[Path(path).read_bytes() for path in paths])
    return Job(PIPELINES[pipeline], images, range(len(paths)), min(50, len(paths)), threads)


@cache
def _opened(case: Case) -> tuple[Job, Epoch]:
    """The pipeline by hand, opened once in a process."""
    job = _job(case)
    return job, DaliByHand().open(job).__enter__()


def _cost(case: Case, seed: int) -> Cost:
    """The cost of an epoch by hand; called in its own process, with DALI's default memory settings."""
    job, epoch = _opened(case)
    job.draws(seed)
    clock = Clock()
    for _batch in epoch(seed):
        pass
    return clock.cost()


def speed(case: Case, rounds: int) -> dict[str, Any]:
    """Every contestant's milliseconds an image, on as many cores as threads.

    Raises:
        Red: a contestant's batches are not as promised: equal to torchvision's or, for DALI's two ways, near to these,
            and nearer to each other, except for how they flip and where they decode.
    """
    (paths, pipeline, threads), job = case, _job(case)
    plain = Entry("torchvision", _FromMemory("torchvision"), job)
    hand = Entry(HAND, DaliByHand(), job, plain)
    ours = Entry(OURS, _Inexact("dali", device="cpu", exact=False), job, hand)
    exact = {"accel, dali, exact=True": _FromMemory("dali", device="cpu"), "accel, cpu": _FromMemory("cpu")}
    ahead = Entry(AHEAD, _Ahead("dali", device="cpu", exact=False), job, hand)
    entries = [plain, hand, ours, ahead, *(Entry(name, each, job, plain) for name, each in exact.items())]
    costs = {DEFAULT: list[Cost]()}
    with usage.pinned(threads), ProcessPoolExecutor(1, get_context("spawn")) as alone:
        with mock.patch.dict(os.environ):
            del os.environ[POOL]
            alone.submit(_cost, case, 0).result()
        beside = {DEFAULT: lambda number: costs[DEFAULT].append(alone.submit(_cost, case, number + 1).result())}
        with accel.image_backend("cpu"):  # torchvision is entered once, off the clock
            take_turns(entries, rounds, beside=beside)
    for each in entries:
        if each.why_not:
            raise Red(f"{each.name}: {each.why_not}")
    near, *alike = hand.stats, ours.stats, ahead.stats
    if (
        near is None
        or near.mean > 0.5
        or any(each is None or each.mean > 0.05 or each.largest > 2.01 for each in alike)
    ):
        raise Red(f"by hand from torchvision: {near}; {OURS} from by hand: {alike}")
    costs |= {each.name: each.rounds for each in entries[1:]}
    cpu = {name: [cost.cpu_seconds for cost in some] for name, some in costs.items()}
    wall = {name: [cost.seconds for cost in some] for name, some in costs.items()}
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
                "rate, of by hand": ratio(wall[name], wall[DEFAULT]),
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
    """For every op, the difference of DALI's result from torchvision's, or the reason why DALI does not run it."""
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
    options = parser(
        "bench.dali", str(__doc__).partition("\n")[0], out="dali-cpu.json", images=100, rounds=7, least=(1, 0)
    )
    options.add_argument("--pipelines", nargs="+", choices=("train", "eval"), default=["train", "eval"])
    args = options.parse_args(argv)
    torch.set_num_threads(1)
    os.environ[POOL] = str(1 << 20)
    result: dict[str, Any] = {"settings": DaliByHand.settings}
    with folder(args.data) as (root, name):
        paths = tuple(os.path.abspath(path) for path in open_folder(root).files[: args.images])
        result["data"] = {"name": name, "images": len(paths)}
        if args.rounds:
            runs = [(pipeline, threads) for pipeline in args.pipelines for threads in (1, 2)]
            result["speed"] = [speed((paths, *run), args.rounds) for run in runs]
            _show_speed(result["speed"])
        result["differences"] = differences(paths[:6])
        show(apart(result["differences"]))
    write(args.out, result)
    return 0


def _show_speed(found: Sequence[dict[str, Any]]) -> None:
    columns = {
        "": "{name}",
        "pipeline": "{pipeline}",
        "threads": "{threads}",
        "ms/image": "{ms:.3f}",
        "CPU ms/image": "{CPU ms:.3f}",
        "CPU, of DALI by hand": "{of by hand:.2f}",
        "of it with pooled memory": "{of by hand, pooled:.2f}",
        "rate, of DALI by hand": "{rate, of by hand:.2f}",
    }
    rows = [{**run, **row, "name": name} for run in found for name, row in run["contestants"].items()]
    show(filled("", columns, rows, text=2))


def apart(found: Sequence[dict[str, Any]]) -> Table:
    """The differences in levels, or why DALI does not run an op."""
    rows = []
    for row in found:
        said = f"none: {row['left']}" if row["left"] else "equal" if row["max"] < 0.5 else "differs"
        differs = f"{row['share that differs']:.2%}", f"{row['mean']:.3f}", f"{row['max']:.0f}"
        figures = {"equal": ("0",) * 3, "differs": differs}.get(said, ("",) * 3)
        rows.append((row["op"], said, *figures))
    return Table("", ("op", "DALI's result", "values that differ", "on average", "at most"), rows, text=2)


if __name__ == "__main__":
    raise SystemExit(main())
