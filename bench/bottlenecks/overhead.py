"""What the profiler costs: on, in turns with off by CPU time; off, the guards that are left, counted and timed.

    python -m bench.bottlenecks.overhead [--data DIR] [--images N] [--rounds N] [--out FILE]

On: a DataLoader of photos, cropped alike each time, without workers and with one that stays; epochs with
``accel.profile``, without, and without again, in turns. CPU time is that of all threads of the process and of its
worker, for each batch; of each batch the median over the rounds counts, and what follows from the rounds drawn anew,
again and again, is the spread. How far "without again" is from "without" says how far to trust the rest. The first
batches, which are measured with more care, are also left out: a long training. Beginning and ending to measure is not
counted, which is once a training.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

import accel
from accel.cli import screen
from accel.cli.arguments import Red, command
from accel.cli.data import folder
from accel.cli.tables import Table, show
from accel.profiling import collect
from accel.system import clocks, measuring
from bench.epochs import linked
from bench.machine import parser, write

MOST_ON, MOST_OFF = 0.01, 500.0
"""Of the CPU time; nanoseconds an image."""
_BATCH = 32
_FIRST = 12
"""Batches at the beginning of an epoch."""
_GUARDS = (measuring.look, measuring.measuring)
"""What is asked while nobody measures; the first takes longer, and its time stands for both."""
_WATCHED = (measuring.__file__, clocks.__file__, str(Path(collect.__file__).parent))


@command("overhead")
def main() -> int:
    """Exit status 1: it costs more than it may."""
    options = parser("bench.bottlenecks.overhead", str(__doc__).partition("\n")[0], out="profiler.json", rounds=25)
    options.set_defaults(images=1600)
    args = options.parse_args()
    torch.set_num_threads(1)
    with (
        folder(args.data) as (given, _),
        tempfile.TemporaryDirectory(prefix="accel-bench-") as made,
        accel.image_backend("cpu", threads=1),
    ):
        files = sorted(str(path) for path in given.rglob("*.jpg"))
        dataset = ImageFolder(str(linked(files, Path(made))), _pipeline())
        order = [index % len(dataset) for index in range(args.images // _BATCH * _BATCH)]
        on = {workers: _on(dataset, order, workers, args.rounds) for workers in (0, 1)}
        off = {workers: _off(dataset, order[: 4 * _BATCH], workers) for workers in (0, 1)}
    rows = [
        (f"{name}, {workers} workers", f"{share:+.2%} of {each['us']:.0f} µs an image", f"{low:+.2%} to {high:+.2%}")
        for workers, each in on.items()
        for name, (share, low, high) in (
            (f"on, {len(order) // _BATCH} batches", each["on"]),
            (f"on, without the first {_FIRST}", each["on later"]),
            ("off again", each["again"]),
        )
    ]
    rows += [
        (f"off, {workers} workers", f"{each['guards']:.3f} guards an image", f"{each['ns']:.1f} ns an image")
        for workers, each in off.items()
    ]
    show(Table("the profiler's overhead", ("", "", ""), rows))
    write(args.out, {"images": len(order), "on": on, "off": off})
    return int(
        max(each["on later"][0] for each in on.values()) > MOST_ON
        or max(each["ns"] for each in off.values()) > MOST_OFF
    )


def _with(workers: int) -> dict[str, Any]:
    return {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}


def _pipeline() -> Callable[[Any], Any]:
    normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    made: Callable[[Any], Any] = transforms.Compose(
        [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), normalize]
    )
    return made


def _on(dataset: Any, order: list[int], workers: int, rounds: int) -> dict[str, Any]:
    """Epochs with and without measuring, in turns."""
    loader = DataLoader(dataset, _BATCH, sampler=order, **_with(workers))

    def epoch() -> list[int]:
        begun: Any = iter(loader)
        clocks = [time.CLOCK_PROCESS_CPUTIME_ID, *(~each.pid << 3 | 2 for each in getattr(begun, "_workers", ()))]
        stamps = [sum(map(time.clock_gettime_ns, clocks))]
        for images, _ in begun:
            images.to("cpu")  # computes what is lazy
            stamps.append(sum(map(time.clock_gettime_ns, clocks)))
        return [int(ns) for ns in np.diff(stamps)]

    def measured() -> list[int]:
        collect.start()
        try:
            return epoch()
        finally:
            collect.stop()

    turns: dict[str, Callable[[], list[int]]] = {"off": epoch, "on": measured, "again": epoch}
    found: dict[str, list[list[int]]] = {name: [] for name in turns}
    epoch()
    measured()
    orders = random.Random(1)
    for number in range(rounds):
        for name in orders.sample(list(turns), len(turns)):
            found[name].append(turns[name]())
        screen.note(f"round {number + 1}: " + ", ".join(f"{name} {sum(found[name][-1]) / 1e9:.3f} s" for name in turns))
    off, on, again = (np.array(each) for each in found.values())
    return {
        "on": _beyond(off, on),
        "on later": _beyond(off[:, _FIRST:], on[:, _FIRST:]),
        "again": _beyond(off, again),
        "us": float(np.median(off, 0).mean()) / _BATCH / 1e3,
        "CPU seconds": {name: [sum(each) / 1e9 for each in epochs] for name, epochs in found.items()},
    }


def _beyond(off: Any, on: Any) -> tuple[float, float, float]:
    """By how much, as a share, one [rounds, batches] costs more than the other: and its 5th and 95th percentiles."""

    def share(rounds: Any) -> float:
        return float(np.median(on[rounds], 0).sum() / np.median(off[rounds], 0).sum() - 1)

    drawn = np.random.default_rng(1).integers(0, len(off), (1000, len(off)))
    low, high = np.percentile([share(rounds) for rounds in drawn], (5, 95))
    return share(slice(None)), float(low), float(high)


class _Counts:
    """A ``worker_init_fn`` that counts calls of guards, and of all else of the profiler's."""

    def __init__(self) -> None:
        self.calls = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __call__(self, worker: int) -> None:
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_WATCHED):
            self.calls[int(all(frame.f_code is not each.__code__ for each in _GUARDS))] += 1


def _off(dataset: Any, order: list[int], workers: int) -> dict[str, Any]:
    """Calls of the profiler's functions while nobody measures, for an image, and what they take."""
    counts = _Counts()
    next(iter(DataLoader(dataset, _BATCH)))  # what is done but once
    loader = DataLoader(dataset, _BATCH, sampler=order, worker_init_fn=counts, **_with(workers))
    begun = iter(loader)
    if not workers:
        counts(0)
    try:
        for images, _ in begun:
            images.to("cpu")
    finally:
        sys.setprofile(None)
    guards, others = counts.calls.tolist()
    if others:
        raise Red(f"{others} calls of the profiler's functions beside the guards, which are not timed")
    times = 200_000
    ns = min(timeit.repeat(_GUARDS[0], number=times, repeat=5)) / times * 1e9
    return {"guards": guards / len(order), "ns a guard": ns, "ns": ns * guards / len(order)}


if __name__ == "__main__":
    sys.exit(main())
