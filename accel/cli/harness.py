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
from accel.cli.data import DataError

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


class Apart:
    """How far values are from the reference's, in levels of uint8.

    Attributes:
        largest, mean: over all values. share: of the values that differ by half a level or more.
    """

    MOST = 6.0
    """Levels by which an image's values may differ on average; more is another picture, and no other arithmetic."""

    def __init__(self, levels: torch.Tensor) -> None:
        """``levels``: how many lie in one unit of the values, [channels, 1, 1]."""
        self._levels = levels
        self._sum = 0.0
        self._values = self._others = 0
        self.largest = 0.0

    @property
    def mean(self) -> float:
        return self._sum / max(self._values, 1)

    @property
    def share(self) -> float:
        return self._others / max(self._values, 1)

    def add(self, wanted: torch.Tensor, found: torch.Tensor) -> str | None:
        """Take an image into account; what is wrong with it, if that is another picture."""
        apart = ((wanted.double() - found.double()).cpu() * self._levels).abs()
        mean = float(apart.mean())
        if not mean <= self.MOST:  # nor NaN
            return f"its values differ by {mean:.3g} levels on average"
        self.largest = max(self.largest, float(apart.max()))
        self._sum += float(apart.sum())
        self._others += int((apart >= 0.499).sum())
        self._values += apart.numel()
        return None

    def __str__(self) -> str:
        return f"{self.share:.1%} of the values differ; {self.mean:.2g} levels on average, {self.largest:.3g} at most"


class Check(NamedTuple):
    """The outcome of a check: None or the first difference; and the seconds each contestant took for its part,
    loading and compiling included."""

    difference: Difference | None
    seconds: dict[str, float]


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


def take_turns(
    contestants: Sequence[Contestant], rounds: int, on_turn: Callable[[], None] = lambda: None
) -> dict[str, list[Cost]]:
    """What some epochs of each cost, by name; interleaved, so that whatever else the machine does meets all.

    Args:
        on_turn: called after each epoch.
    """
    costs: dict[str, list[Cost]] = {contestant.name: [] for contestant in contestants}
    for number in range(rounds):
        for contestant in contestants:
            costs[contestant.name].append(epoch(contestant, number))
            on_turn()
    return costs


def check(
    reference: Contestant,
    others: Sequence[Contestant],
    files: Sequence[str],
    on_images: Callable[[int], None] = lambda count: None,
    seed: int = 0,
    apart: Apart | None = None,
) -> Check:
    """Go through an epoch with all contestants in turns and compare every batch with the reference's.

    Args:
        files: what the epoch's images are made from, in order.
        on_images: called with the number of images, batch by batch.
        apart: takes the images' differences, which may be small ones then; None: there must be none.

    Raises:
        DataError: the reference cannot load them.
    """
    seconds = {contestant.name: 0.0 for contestant in (reference, *others)}
    expected = _turns(reference, seed, seconds)
    turns = [_turns(contestant, seed, seconds) for contestant in others]
    position = 0
    while True:
        wanted = _wanted(reference, expected)
        size = 0 if wanted is None else len(wanted[0])
        for contestant, turn in zip(others, turns, strict=True):
            difference = _difference(contestant, turn, wanted, files[position : position + size] or files[-1:], apart)
            if difference is not None:
                return Check(difference, seconds)
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


def _wanted(reference: Contestant, turn: Iterator[Batch]) -> Batch | None:
    try:
        return next(turn, None)
    except Exception as error:
        raise DataError(f"{reference.name} cannot load the images: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The error in one line; a DataLoader worker's comes with its traceback as text."""
    text = str(error).strip()
    return text.rpartition("\n")[2] if "Traceback" in text else f"{type(error).__name__}: {text}"


def _difference(
    contestant: Contestant,
    turn: Iterator[Batch],
    wanted: Batch | None,
    files: Sequence[str],
    apart: Apart | None = None,
) -> Difference | None:
    """Whether a contestant's next batch is the wanted one, which is made from ``files``; None: the end."""
    try:
        found = next(turn, None)
    except Exception as error:
        batch = f"batch of {len(files)} files that begins with it"
        return Difference(contestant.name, files[0], f"in the {batch}, {_reason(error)}")
    if wanted is None or found is None:
        if wanted is found:
            return None
        return Difference(
            contestant.name, files[0], "the epoch " + ("ends before it" if wanted else "goes on after it")
        )
    if len(wanted) != len(found):
        return Difference(contestant.name, files[0], f"{len(found)} tensors instead of {len(wanted)}")
    for a, b in zip(wanted, found, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return Difference(contestant.name, files[0], f"its batch is {_kind(b)} instead of {_kind(a)}")
    for i, file in enumerate(files):
        for a, b in zip(wanted, found, strict=True):
            if apart is not None and a[i].ndim == 3:
                what = apart.add(a[i], b[i])
            else:
                what = None if torch.equal(a[i], b[i]) else _unequal(a[i], b[i])
            if what is not None:
                return Difference(contestant.name, file, what)
    return None


def _unequal(wanted: torch.Tensor, found: torch.Tensor) -> str:
    if not wanted.ndim:
        return f"label {found.item()} instead of {wanted.item()}"
    apart = (wanted.double() - found.double()).abs()
    share = 100 * (apart > 0).double().mean().item()
    return f"{share:.3g}% of the values differ, by at most {apart.max().item():.3g}"


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _cpu_seconds() -> float:
    """User and system time so far of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
