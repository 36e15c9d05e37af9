"""Comparing ways to make the same tensors, and measuring them in turns, for ``compare`` and ``bench``.

Every figure is checked twice. Before the clock runs, a whole epoch of every contestant is compared with its
reference's. While it runs, one batch of every round is kept (which one changes from round to round) and compared.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader
from torchvision.transforms import functional as F

import accel
from accel.cli import screen
from accel.cli.arguments import Red, WrongUsage
from accel.cli.costs import Clock, Cost, take_turns
from accel.cli.data import Data
from accel.cli.error_stats import Different, ErrorStats, check_equal
from accel.system.cores import cores
from accel.system.native import units

TensorBatch = torch.Tensor | Sequence[torch.Tensor]
"""Images [N, ...]; a list of them if their sizes differ, each followed by its boxes if it has any; or a tuple of such
columns, as a DataLoader returns: images and labels."""


def compare(expected: TensorBatch, found: TensorBatch, names: Sequence[str], stats: ErrorStats | None = None) -> None:
    """Compare batches image by image.

    Args:
        names: the names of the images.
        stats: collects the images' differences, which may then be small; None: they must be equal.

    Raises:
        Different: they are not equal, or cannot be compared.
    """
    tensors, others = (
        list(chain(*zip(*batch, strict=True)) if isinstance(batch, tuple) else batch) for batch in (expected, found)
    )
    if len(tensors) != len(others):
        raise Different(f"{len(others)} tensors instead of {len(tensors)}", names[0])
    for number, (a, b) in enumerate(zip(tensors, others, strict=True)):
        name = names[number * len(names) // len(tensors)]
        if stats is None or not a.ndim:
            check_equal(a, b, name)
        else:
            stats.add(a, b, name)


@dataclass(eq=False)
class Contestant:
    """One way to make batches, and its figures.

    Attributes:
        name: its name in tables.
        epoch: seed -> the batches of an epoch.
        names: number of a batch -> the names of its images.
        reference: the contestant that it is compared with; None: it is a reference.
        compare: (reference's batch, batch, names); raises ``Different`` if the batch is not what it should be.
        context: makes the context that it makes batches in: an image backend.
        threads: for ``torch.set_num_threads``; None: unchanged.
        batches, first: the number of batches in its epochs, and the seconds that the checked epoch took, including
            loading and compiling.
        rounds: the costs of the measured epochs.
    """

    name: str
    epoch: Callable[[int], Iterator[TensorBatch]]
    names: Callable[[int], Sequence[str]]
    reference: Contestant | None = None
    compare: Callable[[TensorBatch, TensorBatch, Sequence[str]], None] = compare
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    threads: int | None = None
    batches: int = 0
    first: float = 0.0
    rounds: list[Cost] = field(default_factory=list)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Set its threads and enter its context for the block."""
        with torch_threads(self.threads or torch.get_num_threads()), self.context():
            yield


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch use so many threads during the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def from_loader(
    name: str,
    data: Data,
    backend: str,
    options: Mapping[str, Any],
    how: Mapping[str, Any],
    target: torch.device | None = None,
    **more: Any,
) -> Contestant:
    """A contestant of a DataLoader's epochs, as a training loop uses them, under an image backend with its options.

    Args:
        how: DataLoader's arguments. target: the batches' device, None: ``device()``. more: fields of ``Contestant``.
    """
    to, size, files = target or device(), how["batch_size"], data.files

    def epoch(seed: int) -> Iterator[TensorBatch]:
        torch.manual_seed(seed)
        for batch in DataLoader(data.dataset, sampler=data.order, pin_memory=to.type == "cuda", **how):
            yield tuple(tensor.to(to, non_blocking=True) for tensor in batch)
        if to.type == "cuda":
            torch.cuda.synchronize(to)

    context = partial(accel.image_backend, backend, **options)
    return Contestant(name, epoch, lambda n: files[n * size : (n + 1) * size], context=context, **more)


def backend_of(name: str, options: Mapping[str, Any]) -> str:
    """The name of the backend that ``name`` stands for here (``"auto"``: the best one), checked with these options.

    Raises:
        WrongUsage: there is no such backend here, or it has no such options.
    """
    try:
        with accel.image_backend(name, **options):
            return accel.get_image_backend()
    except (accel.BackendUnavailable, TypeError, ValueError) as error:
        raise WrongUsage(str(error)) from error


@contextmanager
def compiling(bar: screen.Bar, title: str) -> Iterator[None]:
    """Show in the bar what this process compiles during the block, and roughly for how long; afterwards ``title``."""
    process = os.getpid()

    def watch(left: Collection[units.Unit]) -> None:
        if os.getpid() != process:  # a worker's own
            return
        names, seconds = ", ".join(sorted(unit.name for unit in left)), sum(unit.seconds for unit in left)
        about = f"about {seconds / cores() + 1:.0f} s on an idle machine"
        bar.say(f"compiling once, {about}: {names}" if left else title)

    units.watchers.append(watch)
    try:
        yield
    finally:
        units.watchers.remove(watch)


def device() -> torch.device:
    """The device that a training loop would want its batches on."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def computed(make: Callable[[], Any], seed: int, target: torch.device) -> torch.Tensor:
    """The tensor on the host of an image or tensor that is made with a seed; a lazy one is computed for ``target``."""
    torch.manual_seed(seed)
    random.seed(seed)
    made = make()
    tensor = made if isinstance(made, torch.Tensor) else F.pil_to_tensor(made)
    return torch.stack([tensor]).to(target).cpu()[0]  # as a batch, since only batches are computed on the device


# -- checks -------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """The first difference of a contestant from its reference."""

    contestant: str
    reference: str
    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.contestant} differs from {self.reference}, first in {self.file}: {self.what}"


def check(
    contestants: Sequence[Contestant], on_images: Callable[[int], object] = lambda count: None
) -> dict[str, Difference]:
    """Go through an epoch with all in turns; return the first difference of each that differs, by name.

    Args:
        contestants: references come before those that are compared with them.
        on_images: called with the number of images after every batch.

    Raises:
        WrongUsage: a reference cannot load the images.
    """
    found: dict[str, Difference] = {}
    turns, batches = {each.name: _turns(each) for each in contestants}, dict[str, TensorBatch | None]()
    files: Sequence[str] = [""]
    while contestants and None not in batches.values():
        files = contestants[0].names(contestants[0].batches) or files[-1:]
        for each in contestants:
            if each.name not in found and (difference := _compared(each, turns[each.name], batches, files)):
                found[each.name] = difference
                batches.pop(each.name, None)
        if None not in batches.values():
            on_images(len(files))
    return found


def _compared(
    contestant: Contestant, turns: Iterator[TensorBatch], batches: dict[str, TensorBatch | None], files: Sequence[str]
) -> Difference | None:
    """Put a contestant's next batch among the others'; return its difference from its reference's, if there is one."""
    reference = contestant.reference
    try:
        batch = _next(contestant, turns, files)
        if reference is not None:
            expected = batches.get(reference.name)
            if (expected is None) != (batch is None):
                raise Different("the epoch " + ("goes on after it" if expected is None else "ends before it"))
            if expected is not None and batch is not None:
                contestant.compare(expected, batch, files)
    except Different as error:
        assert reference is not None
        return Difference(contestant.name, reference.name, error.file or files[0], error.what)
    batches[contestant.name] = batch
    return None


def _next(contestant: Contestant, batches: Iterator[TensorBatch], files: Sequence[str]) -> TensorBatch | None:
    try:
        return next(batches, None)
    except Exception as error:
        text = str(error).strip()  # with a DataLoader worker's traceback, if it comes from one
        reason = text.rpartition("\n")[2] if "Traceback" in text else f"{type(error).__name__}: {text}"
        if contestant.reference is None:
            raise WrongUsage(f"{contestant.name} cannot load the images: {reason}") from error
        raise Different(f"in the batch of {len(files)} files that begins with it, {reason}") from error


def _turns(contestant: Contestant) -> Iterator[TensorBatch]:
    """Yield the epoch's batches. Context and random state are set only while one is made, so that contestants can take
    turns."""
    state = torch.Generator().manual_seed(0).get_state()
    batches = contestant.epoch(0)
    while True:
        begin = time.perf_counter()
        with contestant.in_force(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            batch = next(batches, None)
            state = torch.get_rng_state()
        contestant.first += time.perf_counter() - begin
        if batch is None:
            return
        contestant.batches += 1
        yield batch


def measure(
    contestants: Sequence[Contestant],
    rounds: int,
    on_turn: Callable[[str], object] = lambda name: None,
    beside: Mapping[str, Callable[[int], Any]] = MappingProxyType({}),
) -> None:
    """Time an epoch of each contestant, all of which have been checked, in every round, and compare one batch of it.

    Args:
        contestants: references come before those that are compared with them.
        beside: further turns, before theirs in every round.

    Raises:
        Red: a batch differs.
    """
    chosen: dict[str, TensorBatch] = {}
    turns: dict[str, Callable[[int], Any]] = dict(beside)
    turns |= {each.name: partial(_turn, contestant=each, chosen=chosen) for each in contestants}
    take_turns(turns, rounds, on_turn)


def _turn(number: int, contestant: Contestant, chosen: dict[str, TensorBatch]) -> None:
    seed, reference = number + 1, contestant.reference  # the check's seed was 0
    which = int(torch.randint(contestant.batches, (), generator=torch.Generator().manual_seed(seed)))
    with contestant.in_force():
        clock = Clock()
        for place, batch in enumerate(contestant.epoch(seed)):
            if place == which:
                chosen[contestant.name] = batch
        contestant.rounds.append(clock.cost())
    if reference is None:
        return
    try:
        contestant.compare(chosen[reference.name], chosen[contestant.name], reference.names(which))
    except Different as error:
        raise Red(Difference(contestant.name, reference.name, error.file, error.what)) from error
