"""What the profiler costs: on, in turns with off, on the clock on the wall; off, the guards that are left.

    python -m bench.bottlenecks.overhead [--data DIR] [--images N] [--rounds N] [--out FILE]

On: a DataLoader of photos, with the same crops each time, without workers and with a persistent one. Epochs come in
pairs, with ``accel.profile`` and without, in alternating order, timed from an epoch's first batch to its last. The
figure is the median of the pairs' ratios, with its bootstrapped 95% interval. "off again" compares successive epochs
without it from two pairs: its distance from 0 says how far to trust the rest. The same is given without the first
batches, of which CPU time is taken more often, as for a long training; and in CPU time of all threads of the process
and of its worker. Beginning and ending to measure, once a training, is not counted.

Off: the guards are counted and timed.
"""

from __future__ import annotations

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
from accel.system.timing import clocks, measuring
from bench.epochs import linked, modules_not_collected
from bench.machine import parser, write

MOST_ON, MOST_OFF = 0.01, 500.0
"""Limits: part of the time of 50 batches; nanoseconds an image."""
_BATCH = 32
_FIRST = 12
"""The number of first batches of an epoch of which CPU time is taken more often."""
_GUARDS = (measuring.look, measuring.measuring)
"""The functions that are called while nothing is measured; the first is slower, and its time is used for both."""
_WATCHED = (measuring.__file__, clocks.__file__, str(Path(collect.__file__).parent))


@command("overhead")
def main() -> int:
    """Measure. Exit status 1: it costs more than its limits."""
    what, least = str(__doc__).partition("\n")[0], ((_FIRST + 2) * _BATCH, 2)
    options = parser("bench.bottlenecks.overhead", what, out="profiler.json", rounds=64, least=least)
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
        with modules_not_collected():
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
        (f"on, {workers} workers, {clock}", f"{added:+.0f} µs a batch", f"{low:+.0f} to {high:+.0f}")
        for workers, each in on.items()
        for clock, (added, low, high) in each["added us a batch"].items()
    ]
    rows += [
        (f"off, {workers} workers", f"{each['guards']:.3f} guards an image", f"{each['ns']:.1f} ns an image")
        for workers, each in off.items()
    ]
    show(Table("the profiler's overhead", ("", "", ""), rows))
    write(args.out, {"images": len(order), "on": on, "off": off})
    return int(
        max(each["on"][0] for each in on.values()) > MOST_ON or max(each["ns"] for each in off.values()) > MOST_OFF
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
    """Run pairs of epochs with and without measuring, in alternating order."""
    loader = DataLoader(dataset, _BATCH, sampler=order, **_with(workers))

    def epoch(measured: bool) -> list[list[int]]:
        """The times, by each clock, of the first batch, the last of the first ones, and the last."""
        if measured:
            collect.start()
        try:
            batches: Any = iter(loader)
            worker = [~each.pid << 3 | 2 for each in getattr(batches, "_workers", ())]
            clocks = [time.CLOCK_MONOTONIC, time.CLOCK_PROCESS_CPUTIME_ID, *worker]
            stamps = []
            for number, (images, _) in enumerate(batches, 1):
                images.to("cpu")  # computes what is lazy
                if number in (1, _FIRST, len(loader)):
                    stamps.append([time.clock_gettime_ns(each) for each in clocks])
            return stamps
        finally:
            if measured:
                collect.stop()

    epoch(False)
    epoch(True)
    found = np.zeros((rounds, 2, 3, 2 + workers))
    for number in range(rounds):
        for measured in (False, True) if number % 2 else (True, False):
            found[number, int(measured)] = epoch(measured)
        off, on = np.ptp(found[number, ..., 0], 1) / 1e9
        screen.note(f"pair {number + 1}: off {off:.3f} s, on {on:.3f} s")
    clocks = ("wall", "main CPU", "worker CPU")[: 2 + workers]
    whole, later = found[:, :, 2] - found[:, :, 0], found[:, :, 2] - found[:, :, 1]  # [pairs, off or on, clock]
    across = np.stack([whole[: rounds // 2 * 2 : 2, 0], whole[1::2, 0]], 1)
    return {
        "pairs": rounds,
        "on": _beyond(whole[..., 0]),
        "on later": _beyond(later[..., 0]),
        "again": _beyond(across[..., 0]),
        "us": float(np.median(whole[:, 0, 0])) / (len(order) - _BATCH) / 1e3,
        "added us a batch": {
            name: _middle((whole[:, 1, clock] - whole[:, 0, clock]) / (len(loader) - 1) / 1e3)
            for clock, name in enumerate(clocks)
        },
        "seconds": {name: (whole[..., clock] / 1e9).tolist() for clock, name in enumerate(clocks)},
    }


def _beyond(pairs: Any) -> tuple[float, float, float]:
    """The extra time of the second of each pair [pairs, 2], as a part of the first's: median and interval."""
    return _middle(pairs[:, 1] / pairs[:, 0] - 1)


def _middle(values: Any) -> tuple[float, float, float]:
    """The median and its bootstrapped 95% interval."""
    drawn = np.random.default_rng(1).integers(0, len(values), (2000, len(values)))
    low, high = np.percentile(np.median(values[drawn], 1), (2.5, 97.5))
    return float(np.median(values)), float(low), float(high)


class _Counts:
    """A ``worker_init_fn`` that counts calls of guards, and of the profiler's other functions."""

    def __init__(self) -> None:
        self.calls = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __call__(self, worker: int) -> None:
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_WATCHED):
            self.calls[int(all(frame.f_code is not each.__code__ for each in _GUARDS))] += 1


def _off(dataset: Any, order: list[int], workers: int) -> dict[str, Any]:
    """The calls of the profiler's functions for an image, and their time, while nothing is measured."""
    counts = _Counts()
    next(iter(DataLoader(dataset, _BATCH)))  # work done only once
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
