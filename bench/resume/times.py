"""What an exact resume and its preparation cost.

    python -m bench.resume.times [--data DIR] [--rounds N] [--out FILE]

- The first batch: from ``iter()`` to the first batch of 64 photos, of an epoch of 100,000 samples, for a loader that
  begins and one that goes on at 1%, 50% and 99%, in turns; states are loaded before.
- Replaying: milliseconds an image of a batch that is only recorded, and that is computed, one process and one thread.
- Carrying: microseconds that notes take for each batch of 64, in the worker and in the main process.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader, default_collate
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.cli import screen
from accel.cli.arguments import command
from accel.cli.data import folder, open_folder
from accel.cli.tables import Table, show
from accel.resuming import batch_record, worker
from accel.resuming.progress import Order
from bench.machine import parser, write
from bench.pipelines import MEAN, STD

_SAMPLES, _BATCH = 100_000, 64
_POSITIONS = {"1%": 0.01, "50%": 0.5, "99%": 0.99}
TRAIN = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])


def first_batch(photos: ImageFolder, workers: int, rounds: int) -> dict[str, Any]:
    """Seconds to the first batch of a fresh epoch, and of one that goes on, and ratios."""

    def loader() -> Any:
        return DataLoader(photos, _BATCH, shuffle=True, num_workers=workers)

    def spent(state: Any) -> float:
        made = loader()
        if state is not None:
            made.load_state_dict(state)
        begin = time.perf_counter()
        next(iter(made))[0].sum()
        return time.perf_counter() - begin

    states: dict[str, Any] = {"fresh": None}
    for name, share in _POSITIONS.items():
        made = loader()
        batches = accel.skip(made, int(len(made) * share) - 1)
        next(batches)
        states[name] = made.state_dict()
        del batches
    times: dict[str, list[float]] = {name: [] for name in states}
    for number in range(-1, rounds):  # the first one warms up
        for name, state in states.items():
            took = spent(state)
            if number >= 0:
                times[name].append(took)
    seconds = {name: median(each) for name, each in times.items()}
    pairs = {name: zip(times[name], times["fresh"], strict=True) for name in _POSITIONS}
    return {"seconds": seconds, "by fresh": {name: median(a / b for a, b in each) for name, each in pairs.items()}}


def replaying(photos: ImageFolder, rounds: int) -> dict[str, float]:
    """Milliseconds an image of batches that are recorded only, and that are computed."""
    loader, times = DataLoader(photos, _BATCH, shuffle=True), dict[str, list[float]]()
    count = 12
    for number in range(-1, rounds):
        for name in ("recorded", "computed"):
            begin = time.perf_counter()
            if name == "recorded":
                batches = accel.skip(loader, count)
            else:
                batches = iter(loader)
                for _ in range(count):
                    next(batches)[0].sum()
            took = time.perf_counter() - begin
            del batches
            if number >= 0:
                times.setdefault(name, []).append(took / count / _BATCH * 1000)
    found = {name: median(each) for name, each in times.items()}
    return {**found, "times faster": found["computed"] / found["recorded"]}


def carrying(photos: ImageFolder) -> dict[str, float]:
    """Microseconds that notes take for each batch."""
    made = next(iter(DataLoader(photos, _BATCH, shuffle=True)))
    fetcher = type("Fetcher", (), {"dataset": photos, "collate_fn": default_collate})()
    indices, info = list(range(_BATCH)), type("Info", (), {"id": 0})
    order = Order({})

    def noted() -> Any:
        carrier = worker.Carrier(fetcher, indices)
        carrier.record = batch_record.noted(made)
        return carrier

    def received() -> None:
        pickle.loads(sent)
        order.add(indices)

    with patch.object(worker, "get_worker_info", lambda: info):
        sent = bytes(ForkingPickler.dumps(noted()))
        in_worker = _microseconds(lambda: ForkingPickler.dumps(noted()))
    return {"worker": in_worker, "main process": _microseconds(received), "bytes": len(sent)}


def _microseconds(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(50):
        begin = time.perf_counter()
        for _ in range(20):
            call()
        times.append((time.perf_counter() - begin) / 20)
    return median(times) * 1e6


@command("resume.times")
def main() -> int:
    args = parser("bench.resume.times", str(__doc__).partition("\n")[0], out="resume_times.json", rounds=7).parse_args()
    warnings.simplefilter("ignore")  # more workers than cores
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    with folder(args.data) as (place, name):
        photos = open_folder(place, TRAIN, args.images).dataset
        result["photos"] = {"name": name, "images": len(photos)}
        photos.samples = (photos.samples * (_SAMPLES // len(photos.samples) + 1))[:_SAMPLES]
        accel.set_image_backend("cpu", threads=1)
        with screen.Bar("first batches, replaying, carrying"):
            result["first batch"] = {f"{n} workers": first_batch(photos, n, args.rounds) for n in (0, 2)}
            result["replaying"] = replaying(photos, args.rounds)
            result["carrying"] = carrying(photos)
    first = result["first batch"]
    rows = [(key, *(f"{each['by fresh'][key]:.2f}" for each in first.values())) for key in _POSITIONS]
    show(Table("the first batch behind a resume, times a fresh start's", ("position", *first), rows))
    show(
        Table(
            "",
            ("", ""),
            [(key, f"{value:.3f}") for part in ("replaying", "carrying") for key, value in result[part].items()],
        )
    )
    write(args.out, {"load": os.getloadavg(), **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
