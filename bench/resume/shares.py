"""Shares of the comparisons of ``python -m bench.resume``, each made in a process of a pool."""

from __future__ import annotations

import multiprocessing
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import torch
from torch import distributed

from accel.cli.arguments import Red
from bench.resume import cases

PLANTED, APART = 50, 100_000
"""How many trainings have generators planted, and how far apart the numbers are that shares begin with."""

_METHODS = ("fork",) * 35 + ("forkserver",) * 4 + ("spawn",)
"""``spawn`` takes seconds for each worker."""


def begin() -> None:
    """Begin as a process of the pool."""
    warnings.simplefilter("ignore")  # more workers than cores, pinned memory without a GPU
    torch.set_num_threads(1)
    multiprocessing.set_forkserver_preload(["accel", "torchvision", "bench.resume.cases"])


def _compared(made: Iterator[cases.Case], root: Path, resumes: int) -> Counter[str]:
    """Compare resumes, at least so many, with the runs that went through; raises ``Red`` where one differs."""
    found = Counter[str]()
    while found["resumes"] < resumes and (case := next(made, None)):
        different, runs = cases.compared(case, root)
        if different:
            raise Red(f"{case}: {different}")
        found.update(trainings=1, resumes=len(runs) - 1, batches=sum(map(len, runs)))
    return found


def of_random(share: int, root: Path, resumes: int) -> Counter[str]:
    """Random cases."""
    return _compared((cases.chosen(number, _METHODS) for number in count(share * APART)), root, resumes)


def of_planted(share: int, root: Path, trainings: int) -> Counter[str]:
    """Cases with generators of the user's in dataset, sampler and collate function."""
    numbers = range(share * trainings, (share + 1) * trainings)
    return _compared(map(_planted, numbers), root, 2 * trainings)


def _planted(number: int) -> cases.Case:
    kind = cases.PLANTED[number % len(cases.PLANTED)]
    cuts = (2 + number % 7, 9 + number % 3)
    return cases.Case("own", "batches", workers=number % 3, planted=kind, seed=number, cuts=cuts)


def of_rank(rank: int, root: Path, resumes: int) -> Counter[str]:
    """Random cases as one of two ranks; those of the other are made at the same time."""
    distributed.init_process_group("gloo", f"file://{root / 'meeting'}", rank=rank, world_size=2)
    ranked = (replace(cases.chosen(number, dataset="folder"), sampler="ranks", rank=rank) for number in count())
    try:
        return _compared(ranked, root, resumes)
    finally:
        distributed.destroy_process_group()
