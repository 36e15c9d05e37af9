"""Latency of requests: 1, 8 and 32 JPEG files in memory to one batch of ImageNet's evaluation, by the clock.

    python -m bench.serving [--data DIR] [--images N] [--rounds N] [--out FILE]

Each contestant answers one request after another, in turns, on all cores: accel by ``accel.submit(errors="return")``,
the others in as many threads as there are cores, each with a part of the request. Tensors are compared first.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
from PIL import Image

import accel
from accel.cli import screen
from accel.cli.arguments import command
from accel.cli.data import folder, open_folder
from accel.cli.harness import TensorBatch
from accel.cli.tables import Table, show
from accel.system.cores import cores
from bench.contestants.arrays import NvImageCodec
from bench.contestants.contestant import Epoch, InLoader
from bench.contestants.scripts import AccelCpu, TorchCodec, TorchvisionV1, TorchvisionV2
from bench.machine import parser, write
from bench.measure import Entry, opened, take_turns
from bench.pipelines import PIPELINES, Draw, Images, Job, Pipeline

SIZES = (1, 8, 32)


class Threads(InLoader):
    """A request's images in equal parts, each in a thread of a pool."""

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        made = [(self.one(job.pipeline), self.collate(job.pipeline)) for _ in range(job.threads)]

        def part(number: int, items: Sequence[Any]) -> Any:
            one, collate = made[number]
            return collate([one(*item) for item in items[number :: job.threads]])

        def epoch(seed: int) -> Iterator[TensorBatch]:
            torch.set_num_threads(1)  # else torch's own threads wait for each other, beside the pool's
            for items in map(list, job.batches(seed)):
                numbers = range(min(job.threads, len(items)))
                parts = list(pool.map(part, numbers, [items] * len(numbers)))
                whole = torch.empty(len(items), *parts[0].shape[1:])
                for number, each in zip(numbers, parts, strict=True):
                    whole[number :: job.threads] = each
                yield whole

        with ThreadPoolExecutor(job.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield epoch


def _opened(file: str) -> Image.Image:
    return Image.open(BytesIO(Path(file).read_bytes())).convert("RGB")


class Torchvision(Threads, TorchvisionV1):
    settings = "Image.open(BytesIO), transforms.Compose on PIL images, a pool of threads"

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        transform = pipeline.v1()
        return lambda file, draw: transform(_opened(file))


class TorchvisionTensors(Threads, TorchvisionV2):
    settings = "torchvision.io.decode_image, transforms.v2 on uint8 tensors, a pool of threads"


class Codec(Threads, TorchCodec):
    settings = "torchcodec.decoders.decode_image, transforms.v2 on uint8 tensors, a pool of threads"


class NvCodec(Threads, NvImageCodec):
    settings = "a Decoder(CPU_ONLY) of each thread, torch's antialiased uint8 resize"


class Submit(AccelCpu):
    """The images of a request are recorded, and submitted as a list."""

    title = "accel.submit, cpu"
    settings = "Image.open(BytesIO), transforms.Compose, accel.submit(images, errors='return'), torch.stack"
    one = Torchvision.one

    def collate(self, pipeline: Pipeline) -> Callable[[list[Any]], TensorBatch]:
        def collate(images: list[Any]) -> torch.Tensor:
            torch.set_num_threads(1)
            return torch.stack(accel.submit(images, errors="return").result())

        return collate


class SubmitCuda(Submit):
    key = "accel-cuda"
    title = "accel.submit, cuda"

    def why_not(self) -> str | None:
        return accel.image_backends()["cuda"]

    def in_force(self, job: Job) -> AbstractContextManager[Any]:
        return accel.image_backend("cuda", device="cuda")


CONTESTANTS = (Torchvision(), TorchvisionTensors(), Submit(), SubmitCuda(), Codec(), NvCodec())


def measured(files: Sequence[str], size: int, rounds: int) -> dict[str, Any]:
    """Requests of ``size`` images each: every contestant's latencies, or the reason why there are none."""
    images = list(islice(cycle(files), size))
    job = Job(PIPELINES["eval"], Images(files=images), list(range(size)), size, cores())
    first, *others = CONTESTANTS
    reference = Entry(first.title, first, job)
    entries = [reference, *(Entry(each.title, each, job, reference) for each in others)]
    take_turns(entries, 1)  # tensors are compared, which takes longer than most requests
    able = [entry for entry in entries if entry.rounds]
    ms: dict[str, list[float]] = {entry.name: [] for entry in able}
    with opened(able) as running, screen.Bar(f"{size} images", rounds) as bar:
        for seed in range(-1, rounds):  # the first is not measured: threads and decoders are made
            for entry in running:
                with entry.in_force():
                    begin = time.perf_counter()
                    for _ in entry.epoch(seed):
                        pass
                    if seed >= 0:
                        ms[entry.name].append(1000 * (time.perf_counter() - begin))
            bar.advance()
    return {entry.name: _figures(entry, sorted(ms.get(entry.name, []))) for entry in entries}


def _figures(entry: Entry, ms: Sequence[float]) -> dict[str, Any]:
    if not ms:
        return {"settings": entry.who.settings, "not run": entry.why_not}
    marks = quantiles(ms, n=100, method="inclusive")
    difference = None if entry.stats is None else entry.stats.as_data()
    found = {"settings": entry.who.settings, "exact": entry.who.exact, "p50 ms": marks[49], "p99 ms": marks[98]}
    return {**found, "ms": [round(each, 3) for each in ms], "difference in levels": difference}


def table(requests: dict[str, Any]) -> Table:
    """The table of results, by contestant."""
    rows = []
    for name, each in requests[str(SIZES[0])].items():
        cells = [requests[size][name] for size in requests]
        reason = each.get("not run")
        texts = (
            [f"{cell['p50 ms']:.1f} / {cell['p99 ms']:.1f}" for cell in cells] if reason is None else [reason, "", ""]
        )
        rows.append((name, *texts))
    columns = ("p50 / p99, ms", *(f"{size} image{'s' * (size != '1')}" for size in requests))
    return Table("", columns, rows)


@command("serving")
def main(argv: Sequence[str] | None = None) -> int:
    """Measure. Exit status: 0 measured, 1 a tensor differs (nothing is reported), 2 wrong usage."""
    options = parser(
        "bench.serving", str(__doc__).partition("\n")[0], out="serving.json", images=32, rounds=100, least=(1, 2)
    )
    args = options.parse_args(argv)
    with folder(args.data) as (root, name):
        files = open_folder(root).files[: args.images]
        requests = {str(size): measured(files, size, args.rounds) for size in SIZES}
    show(table(requests))
    result = {"data": name, "images": len(files), "rounds": args.rounds, "cores": cores()}
    write(args.out, {**result, "requests": requests})
    return 0


if __name__ == "__main__":
    sys.exit(main())
