"""Contestants: ways to make the same batches. Whether they do is checked first; only then are they timed."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

import accel

Batch = Sequence[torch.Tensor]
"""What a DataLoader gives: images and labels."""


@dataclass(frozen=True)
class Contestant:
    """One way to make batches.

    Attributes:
        name: what tables call it.
        batches: starts an epoch.
        backend, options: the image backend to make them under.
        torch_threads: for ``torch.set_num_threads``; None leaves it as it is.
        late: leave the values late when timed, as an accelerator's host does: only recording costs.
    """

    name: str
    batches: Callable[[], Iterable[Batch]]
    backend: str = "torchvision"
    options: Mapping[str, Any] = field(default_factory=dict)
    torch_threads: int | None = None
    late: bool = False

    @contextmanager
    def in_force(self) -> Iterator[None]:
        threads = torch.get_num_threads()
        torch.set_num_threads(self.torch_threads or threads)
        try:
            with accel.image_backend(self.backend, **self.options):
                yield
        finally:
            torch.set_num_threads(threads)


class Cost(NamedTuple):
    """Wall-clock and CPU seconds; the latter of this process and of the children that ended meanwhile."""

    seconds: float
    cpu_seconds: float


class Difference(NamedTuple):
    """Where a contestant first differs from the reference."""

    contestant: str
    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.contestant} differs from the reference, first in {self.file}: {self.what}"


def device() -> torch.device:
    """Where a training loop would want its batches."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def epoch(contestant: Contestant, seed: int) -> Cost:
    """Go through one epoch as a training loop does and say what it cost.

    DataLoader's workers end with the epoch, so the CPU time is theirs as well.
    """
    target = device()
    with contestant.in_force():
        torch.manual_seed(seed)
        begin, cpu = time.perf_counter(), _cpu_seconds()
        for images, labels in contestant.batches():
            if not contestant.late:
                images.to(target, non_blocking=True)
                labels.to(target, non_blocking=True)
        if target.type == "cuda":
            torch.cuda.synchronize()
        return Cost(time.perf_counter() - begin, _cpu_seconds() - cpu)


def first_difference(
    reference: Contestant,
    others: Sequence[Contestant],
    files: Sequence[str],
    on_images: Callable[[int], None] = lambda count: None,
    seed: int = 0,
) -> Difference | None:
    """Whether all contestants make the reference's tensors: None, or where the first one does not.

    Args:
        files: what the epoch's images are made from, in order.
        on_images: called with the number of images, batch by batch.
    """
    turns = [_turns(contestant, seed) for contestant in others]
    position = 0
    for wanted in _turns(reference, seed):
        size = len(wanted[0])
        for contestant, turn in zip(others, turns, strict=True):
            try:
                found = next(turn, None)
            except Exception as error:
                what = f"in or after this file, {type(error).__name__}: {error}"
                return Difference(contestant.name, files[position], what)
            if found is None:
                return Difference(contestant.name, files[position], "the epoch ended before it")
            for i in range(0 if _equal(wanted, found) else size):
                if (what := _unequal(wanted, found, i)) is not None:
                    return Difference(contestant.name, files[position + i], what)
        position += size
        on_images(size)
    return None


def _turns(contestant: Contestant, seed: int) -> Iterator[Batch]:
    """The epoch's batches; backend and random state are in force only while one is made, so that contestants
    can take turns."""
    target = device()
    state = torch.Generator().manual_seed(seed).get_state()
    epoch: Iterator[Batch] | None = None
    while True:
        with contestant.in_force(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            if epoch is None:
                epoch = iter(contestant.batches())
            batch = next(epoch, None)
            if batch is None:
                return
            batch = [tensor.to(target) for tensor in batch]
            state = torch.get_rng_state()
        yield batch


def _equal(wanted: Batch, found: Batch) -> bool:
    return len(wanted) == len(found) and all(
        a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b) for a, b in zip(wanted, found, strict=True)
    )


def _unequal(wanted: Batch, found: Batch, i: int) -> str | None:
    """What is different about image ``i`` of two batches; None if it is not this one."""
    for a, b in zip(wanted, found, strict=True):
        if a.shape[1:] != b.shape[1:] or a.dtype != b.dtype or a.stride() != b.stride():
            return f"{_kind(b)} instead of {_kind(a)}"
        if i >= len(b):
            return "missing from the batch"
        if not torch.equal(a[i], b[i]):
            if a.ndim == 1:
                return f"label {b[i].item()} instead of {a[i].item()}"
            apart = (a[i].double() - b[i].double()).abs()
            share = 100 * (apart > 0).double().mean().item()
            return f"{share:.3g}% of its values differ, by at most {apart.max().item():.3g}"
    return None


def _kind(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype} {list(tensor.shape)} with strides {list(tensor.stride())}"


def _cpu_seconds() -> float:
    """User and system time so far of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
