"""Speed with more processes or threads, and the CPU time and memory that an image then costs the host."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch

from accel.cli import screen
from accel.cli.harness import TensorBatch
from accel.lazy.tensor_base import LazyTensorBase
from accel.processes import packing
from accel.system.cores import cores
from bench import usage
from bench.contestants import CONTESTANTS
from bench.contestants.contestant import Contestant
from bench.measure import Entry
from bench.null_accelerator import Recipes
from bench.pipelines import PIPELINES, Images, Job
from bench.workload import REFERENCE, Setting, Workload, measured

_USUAL = ("torchvision-v1", "torchvision-v2", "accel-cpu", "opencv", "nvimagecodec", "dali")
"""The contestants if none is named: the most important ones."""

_LEVELS = (0, 1, 2, 4)
_BATCH, _EPOCH, _PROBED, _ROUNDS = 32, 320, 256, 3


def usual(setting: Setting) -> list[Contestant]:
    """Those of the setting's contestants that are in ``_USUAL``, or all if it names its own."""
    everybody = len(setting.contestants) == len(CONTESTANTS)
    return [each for each in setting.among("train") if not everybody or each.key in _USUAL]


def job_for(contestant: Contestant, scale: str, level: int, found: Images, setting: Setting) -> Job:
    """The train pipeline with ``level`` workers or threads."""
    count = min(_EPOCH, setting.limit or _EPOCH)
    order = [number % len(found) for number in range(count)]
    batch_size = min(_BATCH, max(count // 8, 1))
    workers, threads = (level, 1) if scale == "workers" else (0, max(level, 1))
    return Job(PIPELINES["train"], found, order, batch_size, threads, workers)


def entries(who: Sequence[Contestant], levels: Sequence[int], found: Images, setting: Setting) -> list[Entry]:
    """An entry for every contestant at every level; torchvision's come first.

    torchvision's draws depend on the number of workers, so its own script is compared at the same number; the others
    get the draws of no workers.
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
    """An entry's name."""
    return f"{contestant.title}, {level} {scale if level != 1 else scale.rstrip('s')}"


def _measure(setting: Setting) -> dict[str, Any]:
    found = setting.photos
    some = entries(usual(setting), _LEVELS, found, setting)
    part = measured("scaling", some, min(setting.rounds, _ROUNDS), cores())
    return {"pipeline": "train", "images": len(found), **part, "memory": _memory(setting, found)}


def _memory(setting: Setting, found: Images) -> list[dict[str, Any]]:
    """Peak memory and bytes that cross process borders, of each contestant in its own process."""
    rows = []
    who = [each for each in usual(setting) if each.why_not() is None]
    with screen.Bar("memory", len(who) + 1) as bar:
        for each in [*who, Recipes("kept")]:
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                run = alone.submit(probe, each, min(2, cores()), found.files)
                error = run.exception()
            rows.append({"name": each.title, "not run": f"{error}"} if error else run.result())
            bar.advance()
    return rows


def probe(contestant: Contestant, level: int, files: Sequence[str]) -> dict[str, Any]:
    """For some batches with ``level`` workers (or threads): the peak memory of this process and its workers above that
    after set-up, and the bytes sent from workers to the main process."""
    threads = contestant.scales[0] == "threads"
    order = [number % len(files) for number in range(_PROBED)]
    own, workers = (level, 0) if threads else (1, level)
    job = Job(PIPELINES["train"], Images(files=files), order, _BATCH, own, workers)
    torch.set_num_threads(1)
    images = crossing = 0
    with contestant.open(job) as epoch, contestant.in_force(job):
        for batch in epoch(0):  # starts workers and fills caches
            crossing += 0 if threads else _bytes(batch)
            images += len(batch)
        with usage.PeakMemory() as peak:
            for _ in epoch(1):
                peak.look()
    return {
        "name": contestant.title,
        "workers": workers,
        "threads": own,
        "peak MB": peak.highest / 1e6,
        "bytes across process borders per image": None if threads else crossing / images,
    }


def _bytes(batch: TensorBatch) -> int:
    """The bytes sent with a batch: those of its tensors, or of its files and recipes."""
    if isinstance(batch, LazyTensorBase):
        data, *rest = packing.pack(batch.lazy.recipes)
        return data.nbytes + len(pickle.dumps(rest))
    return sum(tensor.untyped_storage().nbytes() for tensor in ([batch] if isinstance(batch, torch.Tensor) else batch))


SCALING = Workload("scaling", "train pipeline on photos with more workers or threads, all cores", _measure)


def _loader(setting: Setting) -> dict[str, Any]:
    """Every contestant with as many workers as cores or, if it has threads of its own instead, as many threads."""
    found, level = setting.photos, cores()

    def entry(who: Contestant, level: int, scale: str, reference: Entry | None = None) -> Entry:
        return Entry(name(who, level, scale), who, job_for(who, scale, level, found, setting), reference)

    first, plain = (entry(REFERENCE, number, "workers") for number in (level, 0))
    others = [
        entry(each, level, each.scales[0], first if each.follows_seed else plain)
        for each in setting.among("train")
        if each is not REFERENCE
    ]
    part = measured("loader", [first, plain, *others], min(setting.rounds, _ROUNDS), level)
    return {"pipeline": "train", "images": len(found), **part}


LOADER = Workload("loader", "train pipeline on photos, as many workers (or threads) as cores", _loader)
