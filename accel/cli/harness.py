"""Compares ways to make the same tensors, and measures them in turns: what ``compare`` and ``bench`` stand on.

Whether a contestant's tensors are the reference's is checked first; only then is it timed.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

import torch

import accel
from accel.cli.data import DataError
from accel.cli.error_stats import Different, ErrorStats, check_equal, check_kind

T = TypeVar("T")

Batch = Sequence[torch.Tensor]
"""Images and labels, as a DataLoader gives them."""

# -- costs --------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Wall-clock and CPU seconds; the latter of this process and of all that it has started."""

    seconds: float
    cpu_seconds: float


class Clock:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._seconds, self._cpu = time.perf_counter(), cpu_seconds()

    def cost(self) -> Cost:
        """The cost so far."""
        return Cost(time.perf_counter() - self._seconds, cpu_seconds() - self._cpu)


def cpu_seconds() -> float:
    """User and system time so far of this process, of its living descendants and of children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_cpu_of, descendants()))


def _cpu_of(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def descendants(pid: int | None = None) -> list[int]:
    """The living processes below this one."""
    found = []
    for task in Path(f"/proc/{pid or os.getpid()}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def take_turns(
    turns: Mapping[str, Callable[[int], T]], rounds: int, on_turn: Callable[[str], object] = lambda name: None
) -> dict[str, list[T]]:
    """The results of all in each round, A B C A B C, so that whatever else the machine does meets all.

    Args:
        turns: called with the number of the round.
        on_turn: called after each turn.
    """
    found: dict[str, list[T]] = {name: [] for name in turns}
    for number in range(rounds):
        for name, turn in turns.items():
            found[name].append(turn(number))
            on_turn(name)
    return found


def ratio(costs: Iterable[float], others: Iterable[float]) -> float:
    """How many times as much the others cost: the median over the rounds of the ratio within a round."""
    return median(b / a for a, b in zip(costs, others, strict=True))


# -- contestants that a DataLoader's loop goes through ------------------------------------------------------


@dataclass(frozen=True)
class Contestant:
    """One way to make batches.

    Attributes:
        name: what tables call it.
        batches: starts an epoch.
        backend, options: the image backend to make them under.
        torch_threads: for ``torch.set_num_threads``; None leaves it as it is.
    """

    name: str
    batches: Callable[[], Iterable[Batch]]
    backend: str = "torchvision"
    options: Mapping[str, Any] = field(default_factory=dict)
    torch_threads: int | None = None

    @contextmanager
    def in_force(self) -> Iterator[None]:
        threads = torch.get_num_threads()
        torch.set_num_threads(self.torch_threads or threads)
        try:
            with accel.image_backend(self.backend, **self.options):
                yield
        finally:
            torch.set_num_threads(threads)

    def epoch(self, seed: int) -> Cost:
        """Go through one epoch as a training loop does."""
        target = device()
        with self.in_force():
            torch.manual_seed(seed)
            clock = Clock()
            for images, labels in self.batches():
                images.to(target, non_blocking=True)
                labels.to(target, non_blocking=True)
            if target.type == "cuda":
                torch.cuda.synchronize()
            return clock.cost()


def device() -> torch.device:
    """Where a training loop would want its batches."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Difference(NamedTuple):
    """Where a contestant first differs from the reference."""

    contestant: str
    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.contestant} differs from the reference, first in {self.file}: {self.what}"


class Check(NamedTuple):
    """The outcome of a check: None or the first difference; and the seconds each contestant took for its part,
    loading and compiling included."""

    difference: Difference | None
    seconds: dict[str, float]


def check(
    reference: Contestant,
    others: Sequence[Contestant],
    files: Sequence[str],
    on_images: Callable[[int], None] = lambda count: None,
    seed: int = 0,
    stats: ErrorStats | None = None,
) -> Check:
    """Go through an epoch with all contestants in turns and compare every batch with the reference's.

    Args:
        files: what the epoch's images are made from, in order.
        on_images: called with the number of images, batch by batch.
        stats: takes the images' differences, which may be small ones then; None: there must be none.

    Raises:
        DataError: the reference cannot load them.
    """
    seconds = {contestant.name: 0.0 for contestant in (reference, *others)}
    expected = _turns(reference, seed, seconds)
    turns = [_turns(contestant, seed, seconds) for contestant in others]
    position = 0
    while True:
        try:
            wanted = next(expected, None)
        except Exception as error:
            raise DataError(f"{reference.name} cannot load the images: {_reason(error)}") from error
        size = 0 if wanted is None else len(wanted[0])
        for contestant, turn in zip(others, turns, strict=True):
            difference = _difference(turn, wanted, files[position : position + size] or files[-1:], stats)
            if difference is not None:
                return Check(Difference(contestant.name, *difference), seconds)
        if wanted is None:
            return Check(None, seconds)
        position += size
        on_images(size)


def _turns(contestant: Contestant, seed: int, seconds: dict[str, float]) -> Iterator[Batch]:
    """The epoch's batches. Backend and random state are in force only while one is made, so that contestants
    can take turns; the time it takes is added to ``seconds``."""
    target = device()
    state = torch.Generator().manual_seed(seed).get_state()
    batches: Iterator[Batch] | None = None
    while True:
        begin = time.perf_counter()
        with contestant.in_force(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            if batches is None:
                batches = iter(contestant.batches())
            batch = next(batches, None)
            if batch is None:
                return
            batch = [tensor.to(target) for tensor in batch]
            state = torch.get_rng_state()
        seconds[contestant.name] += time.perf_counter() - begin
        yield batch


def _reason(error: Exception) -> str:
    """The error in one line; a DataLoader worker's comes with its traceback as text."""
    text = str(error).strip()
    return text.rpartition("\n")[2] if "Traceback" in text else f"{type(error).__name__}: {text}"


def _difference(
    turn: Iterator[Batch], wanted: Batch | None, files: Sequence[str], stats: ErrorStats | None
) -> tuple[str, str] | None:
    """The file and the difference, if the next batch is not the wanted one, which is made from ``files``."""
    file = files[0]
    try:
        found = next(turn, None)
    except Exception as error:
        return file, f"in the batch of {len(files)} files that begins with it, {_reason(error)}"
    if wanted is None or found is None:
        return None if wanted is found else (file, "the epoch " + ("ends before it" if wanted else "goes on after it"))
    try:
        check_kind(wanted, found)
        for i, file in enumerate(files):
            for a, b in zip(wanted, found, strict=True):
                if stats is not None and a[i].ndim == 3:
                    stats.add(a[i], b[i], file)
                else:
                    check_equal(a[i], b[i])
    except Different as error:
        return file, str(error)
    return None
