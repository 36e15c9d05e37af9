"""A simulated accelerator: a consumer that takes one batch every so often. Who keeps it busy, with how many workers?

It stands for a training loop whose device needs a fixed time for a batch, as a device fed through a full queue does;
it costs the host nothing. What the loop waits beyond that time, the device stands still.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from accel.cli import harness, screen
from accel.cli.costs import cpu_seconds, take_turns
from bench import usage
from bench.contestants.contestant import Contestant
from bench.job import Images
from bench.measure import Entry, contestant
from bench.measure import take_turns as checked
from bench.null_accelerator import Recipes
from bench.workload import REFERENCE, Setting, Workload
from bench.workloads.scaling import job_for, name, usual

RATES = (3_000, 5_000, 10_000)
"""Images a second that the accelerator could take."""

_ROUNDS = 2


class _Turn(NamedTuple):
    """One epoch: images a second, the share of time the accelerator stood still, CPU seconds for an image."""

    rate: float
    waiting: float
    cpu_seconds: float


def _measure(setting: Setting) -> dict[str, Any]:
    found = setting.photos
    levels = [level for level in (1, 2) if level <= setting.cores]
    recipes = Recipes()
    who: list[Contestant] = [*usual(setting), recipes]
    _check(setting, [each for each in who if each is not recipes], recipes)
    rows: list[dict[str, Any]] = []
    with usage.pinned(setting.cores) as cores, ExitStack() as stack:
        running = []
        for each in who:
            if (why_not := each.why_not()) is not None:
                rows.append({"name": each.title, "not run": why_not})
                continue
            for level in levels:
                scale = each.scales[0]
                job = job_for(each, scale, level, found, setting)
                made = contestant(name(each, level, scale), each, job, stack.enter_context(each.open(job)))
                made.threads = 1
                running.append((each, level, scale, made, job.batch_size))
        turns = {
            (made.name, speed): partial(_turn, made, size, speed)
            for speed in (*map(float, RATES), math.inf)
            for *_, made, size in running
        }
        rounds = min(setting.rounds, _ROUNDS)
        with screen.Bar("feed", len(running) + rounds * len(turns)) as bar:
            for *_, made, _size in running:  # starts workers
                _turn(made, 1, math.inf, -1)
                bar.advance()
            taken = take_turns(turns, rounds, lambda turn: bar.advance())
    for each, level, scale, made, _ in running:
        own = {speed: some for (named, speed), some in taken.items() if named == made.name}
        rows.append(_row(each, level, scale, own))
    return {"pipeline": "train", "images": len(found), "cores": cores, "feed": rows}


def _row(who: Contestant, level: int, scale: str, turns: dict[float, list[_Turn]]) -> dict[str, Any]:
    free = median(turn.rate for turn in turns[math.inf])
    return {
        "name": name(who, level, scale),
        "contestant": who.title,
        scale: level,
        "images per second": free,
        "CPU ms": 1000 * median(turn.cpu_seconds for turn in turns[math.inf]),
        "waiting": {str(rate): median(turn.waiting for turn in turns[rate]) for rate in RATES},
        "needed": {str(rate): math.ceil(rate * level / free) for rate in RATES},
        "rounds": {str(speed): [turn._asdict() for turn in some] for speed, some in turns.items()},
    }


def _turn(made: harness.Contestant, batch_size: int, speed: float, number: int) -> _Turn:
    """An epoch at that many images a second, from its first batch on."""
    begin: float | None = None
    taken, waiting = 0, 0.0
    last = cpu = 0.0
    with made.in_force():
        for batch in made.epoch(number + 1):
            now = time.perf_counter()
            if begin is None:
                begin, cpu = now, cpu_seconds()
            else:
                waiting += now - last
                taken += len(batch)
            if speed != math.inf:
                time.sleep(batch_size / speed)
            last = time.perf_counter()
    assert begin is not None
    seconds = last - begin
    return _Turn(taken / seconds, waiting / seconds, (cpu_seconds() - cpu) / max(taken, 1))


def _check(setting: Setting, who: list[Contestant], recipes: Recipes) -> None:
    """Every contestant once through the usual checks; the recipes are computed on the host and must be torchvision's.

    Raises:
        Red: an exact contestant's values differ.
    """
    found = setting.photos
    some = Images(files=found.files[:8])
    jobs = {each.key: job_for(each, each.scales[0], 0, some, setting) for each in [*who, recipes]}
    reference = Entry("reference", REFERENCE, jobs[REFERENCE.key])
    others = [Entry(each.title, each, jobs[each.key], "reference") for each in [*who, recipes] if each is not REFERENCE]
    recipes.computes = True
    try:
        checked([reference, *others], rounds=0)
    finally:
        recipes.computes = False


FEED = Workload(
    "feed",
    "a simulated accelerator that could take 3,000, 5,000 or 10,000 images a second: who keeps it busy?",
    _measure,
)
