"""A simulated accelerator: a consumer of batches at a fixed rate. Which contestants keep it busy, with which workers?

It models a training loop whose device needs a fixed time for a batch, as a device fed through a full queue does, and
costs the host nothing. While the loop waits longer than that, the device is idle.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from accel.cli import screen
from accel.cli.costs import take_turns
from accel.cli.harness import TensorBatch
from accel.system.cores import cores
from bench import usage
from bench.contestants.contestant import Contestant
from bench.measure import Entry, Fed, fed, opened
from bench.measure import take_turns as checked
from bench.null_accelerator import Folder, FolderRecipes, Recipes
from bench.pipelines import Images, Job
from bench.workload import Setting, Workload
from bench.workloads.scaling import job_for, name, usual

RATES = (3_000, 5_000, 10_000)  # images a second that the accelerator could take
_ROUNDS, _LONGER, _BATCH = 2, 32, 256


def _measure(setting: Setting) -> dict[str, Any]:
    found = setting.photos
    levels = [level for level in (1, 2) if level <= cores()]
    why_not = {each.who.key: each.why_not for each in _check(setting)}
    who = [*usual(setting), Recipes(), FolderRecipes()]
    rows: list[dict[str, Any]] = [{"name": each.title, "not run": why} for each in who if (why := why_not[each.key])]
    entries = [
        Entry(name(each, level, scale), each, _job(each, scale, level, setting))
        for each in who
        for scale in each.scales[:1]
        for level in levels
        if not why_not[each.key]
    ]
    for each in entries:
        each.threads = 1
    with usage.pinned(cores()) as kept, opened(entries) as running:
        speeds = (*map(float, RATES), math.inf)
        turns = {(each.name, speed): partial(_turn, each, speed) for speed in speeds for each in running}
        rounds = min(setting.rounds, _ROUNDS)
        with screen.Bar("feed", len(running) + rounds * len(turns)) as bar:
            for each in running:  # starts workers
                _turn(each, math.inf, -1)
                bar.advance()
            taken = take_turns(turns, rounds, lambda turn: bar.advance())
    rows += [{"name": each.name, "not run": each.why_not} for each in entries if each.why_not]
    rows += [_row(each, {speed: taken[each.name, speed] for speed in speeds}) for each in running]
    return {"pipeline": "train", "images": len(found), "cores": kept, "feed": rows}


def _job(who: Contestant, scale: str, level: int, setting: Setting) -> Job:
    """A contestant's job; accel's host part gets longer epochs of a GPU's batches, as short ones only fill queues."""
    job = job_for(who, scale, level, setting.photos, setting)
    if not isinstance(who, Recipes):
        return job
    order = list(job.order) * _LONGER
    return replace(job, order=order, batch_size=min(_BATCH, max(len(order) // 8, 1)))


def _row(entry: Entry, turns: dict[float, list[Fed]]) -> dict[str, Any]:
    free = median(turn.rate for turn in turns[math.inf])
    scale = entry.who.scales[0]
    level = entry.job.workers or entry.job.threads
    return {
        "name": entry.name,
        "contestant": entry.who.title,
        scale: level,
        "images per second": free,
        "CPU ms": 1000 * median(turn.cpu_seconds for turn in turns[math.inf]),
        "waiting": {str(rate): median(turn.waiting for turn in turns[rate]) for rate in RATES},
        "needed": {str(rate): math.ceil(rate * level / free) for rate in RATES},
        "rounds": {str(speed): [turn._asdict() for turn in some] for speed, some in turns.items()},
    }


def _turn(entry: Entry, speed: float, number: int) -> Fed:
    """An epoch at ``speed`` images a second."""

    def use(batch: TensorBatch) -> int:
        time.sleep(entry.job.batch_size / speed)
        return len(batch)

    with entry.in_force():
        return fed(entry.epoch(number + 1), use)


def _check(setting: Setting) -> list[Entry]:
    """Check every contestant once; recipes are computed on the host, and must equal torchvision's values.

    Raises:
        Red: an exact contestant's values differ.
    """
    some = Images(files=setting.photos.files[:8])
    who = [*usual(setting), Recipes("computed"), Folder(), FolderRecipes("computed")]
    entries = [Entry(each.title, each, job_for(each, each.scales[0], 0, some, setting)) for each in who]
    *others, own, folders = entries
    for each in others[1:]:
        each.reference = entries[0]
    folders.reference = own
    checked(entries, rounds=0)
    return entries


FEED = Workload(
    "feed",
    "a simulated accelerator that could take 3,000, 5,000 or 10,000 images a second: who keeps it busy?",
    _measure,
)
