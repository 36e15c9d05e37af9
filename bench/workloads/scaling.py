"""Speed with more processes or threads, and what an image then costs the host in CPU time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from accel.cli import screen
from accel.system.cores import cores
from bench.contestants import CONTESTANTS
from bench.contestants.contestant import Contestant
from bench.job import Images, Job
from bench.measure import Entry
from bench.pipelines import PIPELINES
from bench.probe import Shipped, probe
from bench.workload import REFERENCE, Setting, Workload, measured

_USUAL = ("torchvision-v1", "torchvision-v2", "accel-cpu", "opencv", "nvimagecodec", "dali")
"""The contestants where none is named: those with the most weight."""

_LEVELS = (0, 1, 2, 4)
_BATCH, _EPOCH, _ROUNDS = 32, 320, 3


def usual(setting: Setting) -> list[Contestant]:
    """Those of the setting's contestants that are named above, or all where it names its own."""
    everybody = len(setting.contestants) == len(CONTESTANTS)
    return [each for each in setting.among("train") if not everybody or each.key in _USUAL]


def job_for(contestant: Contestant, scale: str, level: int, found: Images, setting: Setting) -> Job:
    """The train pipeline with that many workers or threads."""
    count = min(_EPOCH, setting.limit or _EPOCH)
    order = [number % len(found) for number in range(count)]
    batch_size = min(_BATCH, max(count // 8, 1))
    workers, threads = (level, 1) if scale == "workers" else (0, max(level, 1))
    return Job(PIPELINES["train"], found, order, batch_size, threads, workers)


def entries(who: Sequence[Contestant], levels: Sequence[int], found: Images, setting: Setting) -> list[Entry]:
    """An entry for every contestant at every level; torchvision's come first.

    torchvision's draws depend on the number of workers, so its own script is compared at the same number; the others
    are given the draws of no workers.
    """
    made: dict[str, Entry] = {}
    for each in who:
        for scale in each.scales:
            for level in levels:
                if scale == "threads" and (level == 0 or level > cores()):
                    continue
                job = job_for(each, scale, level, found, setting)
                reference = name(REFERENCE, job.workers if each.follows_seed else 0, "workers")
                called = name(each, level, scale)
                made[called] = Entry(called, each, job, None if each is REFERENCE else made.get(reference))
    return list(made.values())


def name(contestant: Contestant, level: int, scale: str) -> str:
    """The name of an entry."""
    return f"{contestant.title}, {level} {scale if level != 1 else scale.rstrip('s')}"


def _measure(setting: Setting) -> dict[str, Any]:
    found = setting.photos
    some = entries(usual(setting), _LEVELS, found, setting)
    part = measured("scaling", some, min(setting.rounds, _ROUNDS), cores())
    return {"pipeline": "train", "images": len(found), **part, "memory": _memory(setting, found)}


def _memory(setting: Setting, found: Images) -> list[dict[str, Any]]:
    """Peak memory and bytes that cross process borders, each contestant in a process of its own."""
    rows = []
    who = [each for each in usual(setting) if each.why_not() is None]
    with screen.Bar("memory", len(who) + 1) as bar:
        for each in [*who, Shipped()]:
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                run = alone.submit(probe, each, min(2, cores()), found.files)
                error = run.exception()
            rows.append({"name": each.title, "not run": f"{error}"} if error else run.result())
            bar.advance()
    return rows


SCALING = Workload("scaling", "train pipeline on photos with more workers or threads, all cores", _measure)
