"""What the profiler costs: on, in turns with off by CPU time; off, the guards that are left, counted and timed.

    python -m bench.bottlenecks.overhead [--data DIR] [--images N] [--rounds N] [--out FILE]

On: a DataLoader of photos for training, without workers and with one that stays, an epoch with and one without
``accel.profile``, in turns. CPU time is that of all threads of the process and of its worker, by the scheduler's own
count; beginning and ending to measure, which is once a training, is not part of it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import timeit
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision import transforms

import accel
from accel.cli import samples, screen
from accel.cli.arguments import Red, command
from accel.cli.costs import descendants, ratio, take_turns
from accel.cli.data import open_folder
from accel.cli.tables import Table, show
from accel.profiling import collect
from accel.system import clocks, measuring
from bench.machine import parser, write

MOST_ON, MOST_OFF = 0.01, 500.0
"""Of the CPU time; nanoseconds an image."""
_BATCH = 16
_WATCHED = (measuring.__file__, clocks.__file__, str(Path(collect.__file__).parent))


@command("overhead")
def main() -> int:
    """Exit status 1: it costs more than it may."""
    options = parser("bench.bottlenecks.overhead", str(__doc__).partition("\n")[0], out="profiler.json", rounds=9)
    options.set_defaults(images=320)
    args = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="accel-bench-") as made, accel.image_backend("cpu", threads=1):
        if args.data is None:
            samples.write(Path(made), 32)
        dataset = open_folder(args.data or Path(made), _pipeline()).dataset
        order = [index % len(dataset) for index in range(args.images // _BATCH * _BATCH)]
        on = {
            workers: _on(DataLoader(dataset, _BATCH, sampler=order, **_with(workers)), args.rounds)
            for workers in (0, 1)
        }
        off = {workers: _off(dataset, order[: 4 * _BATCH], workers) for workers in (0, 1)}
    rows = [
        (f"on, {workers} workers", f"{each['share']:+.2%} of CPU time", f"{each['us']:.0f} µs an image")
        for workers, each in on.items()
    ]
    rows += [
        (f"off, {workers} workers", f"{each['guards']:.3f} guards an image", f"{each['ns']:.1f} ns an image")
        for workers, each in off.items()
    ]
    show(Table("the profiler's overhead", ("", "", ""), rows))
    write(args.out, {"images": len(order), "on": on, "off": off})
    return int(
        max(each["share"] for each in on.values()) > MOST_ON or max(each["ns"] for each in off.values()) > MOST_OFF
    )


def _with(workers: int) -> dict[str, Any]:
    return {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}


def _pipeline() -> Callable[[Any], Any]:
    normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    crop = transforms.RandomResizedCrop(224)
    made: Callable[[Any], Any] = transforms.Compose(
        [crop, transforms.RandomHorizontalFlip(), transforms.ToTensor(), normalize]
    )
    return made


def _on(loader: DataLoader[Any], rounds: int) -> dict[str, Any]:
    """Epochs with and without measuring, in turns."""

    def epoch() -> float:
        before = _cpu_seconds()
        for images, _ in loader:
            images.to("cpu")  # computes what is lazy
        return _cpu_seconds() - before

    def plain(number: int) -> float:
        epoch()  # what changes with the switch from one to the other changes here
        return epoch()

    def measured(number: int) -> float:
        collect.start()
        try:
            return plain(number)
        finally:
            collect.stop()

    # a turn in the other order every second round: whatever comes first is no dearer for that
    turns: dict[str, list[float]] = {"off": [], "on": []}
    for number in range(rounds):
        both: dict[str, Callable[[int], float]] = {"off": plain, "on": measured}
        for name, found in take_turns(dict(list(both.items())[:: 1 - number % 2 * 2]), 1).items():
            turns[name] += found
        screen.note(f"round {number + 1}: off {turns['off'][-1]:.3f} s, on {turns['on'][-1]:.3f} s")
    share = ratio(turns["off"], turns["on"]) - 1
    return {"share": share, "us": median(turns["off"]) / len(loader) / _BATCH * 1e6, "CPU seconds": turns}


def _cpu_seconds() -> float:
    """CPU time of all threads of this process and those below it, by the scheduler's count of nanoseconds."""
    total = 0
    for pid in (os.getpid(), *descendants()):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


class _Counts:
    """A ``worker_init_fn`` that counts calls of ``measuring.look``, and of all else of the profiler's."""

    def __init__(self) -> None:
        self.calls = torch.zeros(2, dtype=torch.int64).share_memory_()

    def __call__(self, worker: int) -> None:
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_WATCHED):
            self.calls[int(frame.f_code is not measuring.look.__code__)] += 1


def _off(dataset: Any, order: list[int], workers: int) -> dict[str, Any]:
    """Calls of the profiler's functions while nobody measures, for an image, and what they take."""
    counts = _Counts()
    loader = DataLoader(dataset, _BATCH, sampler=order, worker_init_fn=counts, **_with(workers))
    begun = iter(loader)
    if not workers:
        counts(0)
    try:
        for images, _ in begun:
            images.to("cpu")
    finally:
        sys.setprofile(None)
    look, others = counts.calls.tolist()
    if others:
        raise Red(f"{others} calls of the profiler's functions beside measuring.look, which are not timed")
    times = 200_000
    ns = min(timeit.repeat(measuring.look, number=times, repeat=5)) / times * 1e9
    return {"guards": look / len(order), "ns a guard": ns, "ns": ns * look / len(order)}


if __name__ == "__main__":
    sys.exit(main())
