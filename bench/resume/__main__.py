"""Exact resume: random resumes, generators of the user's, and what a resume and its preparation cost.

    python -m bench.resume [--data DIR] [--resumes N] [--rounds N] [--out FILE]

- Resumes: random cases (``cases.py``) of dataset, sampler, batch size, workers and how they are started, persistent
  workers, pinning, two ranks, and one to three kills. The run that goes through is compared with torchvision's, and the
  one that is killed and goes on with it: tensors, labels, and the random states behind every step.
- Generators planted in dataset, sampler and collate function, of four kinds, in 50 cases.
- The first batch: from ``iter()`` to the first batch of 64 photos, of an epoch of 100,000 samples, for a loader that
  begins and one that goes on at 1%, 50% and 99%, in turns; states are loaded before.
- Replaying: milliseconds an image of a batch that is only recorded, and that is computed, one process and one thread.
- Carrying: microseconds that notes take for each batch of 64, in the worker and in the main process.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader, default_collate
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.cli import samples, screen
from accel.cli.arguments import Red, at_least, command
from accel.cli.data import folder, open_folder
from accel.cli.tables import Table, show
from accel.resuming import batch_record, worker
from accel.resuming.progress import Order
from bench.machine import parser, write
from bench.pipelines import MEAN, STD
from bench.resume import cases

_SAMPLES, _BATCH, _PLANTED = 100_000, 64, 50
_POSITIONS = {"1%": 0.01, "50%": 0.5, "99%": 0.99}
TRAIN = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])


def resumes(root: Path, numbers: range, make: Callable[[int], cases.Case], bar: screen.Bar) -> dict[str, int]:
    """Compare resumes with the runs that went through; raises ``Red`` where one differs."""
    found = {"trainings": 0, "resumes": 0, "batches": 0}
    for number in numbers:
        case = make(number)
        with accel.image_backend("torchvision"):
            plain, _ = cases.train(case, root)
        with accel.image_backend("cpu"):
            whole, _ = cases.train(case, root)
            resumed = cases.resumed(case, root)
        if different := cases.difference(plain, whole) or cases.difference(whole, resumed):
            raise Red(f"{case}: {different}")
        found["trainings"] += 1
        found["resumes"] += sum(cut < len(whole) for cut in case.cuts)
        found["batches"] += len(whole)
        bar.advance(1)
    return found


def _planted(number: int) -> cases.Case:
    kind = cases.PLANTED[number % len(cases.PLANTED)]
    cuts = (2 + number % 7, 9 + number % 3)
    return cases.Case("own", "batches", workers=number % 3, planted=kind, seed=number, cuts=cuts)


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
        return carrier.sent(None)

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


def _files(place: Path) -> Path:
    """A folder of 26 small files in two classes."""
    for number in range(26):
        path = place / f"class{number % 2}" / f"{number:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        samples.picture(number, (60 + number, 50 + number % 5)).save(path, quality=88)
    return place


@command("resume")
def main() -> int:
    options = parser("bench.resume", str(__doc__).partition("\n")[0], out="resume.json", rounds=7)
    options.add_argument(
        "--resumes", type=at_least(1), default=1000, metavar="N", help="random trainings [%(default)s]"
    )
    args = options.parse_args()
    warnings.simplefilter("ignore")  # more workers than cores, pinned memory without a GPU
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="accel-resume-") as place,
        screen.Bar("random resumes", args.resumes + _PLANTED) as bar,
    ):
        root, methods = _files(Path(place)), ("fork",) * 19 + ("spawn",)  # which takes seconds for each worker
        result["random"] = resumes(root, range(args.resumes), lambda number: cases.chosen(number, methods), bar)
        result["planted"] = resumes(root, range(_PLANTED), _planted, bar)
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
