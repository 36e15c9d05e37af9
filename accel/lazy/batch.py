"""Lazy tensors that came together, as the samples or the tensors of one batch: their companions.

What is asked of one of them is done for all that are still expected to be used: they are computed together where nobody
stacked them, submitted together, and sent to the parent in one message, each file once.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from accel.options import Selection
from accel.recipe import Recipe, Step, selection_of
from accel.rows import Rows, joined, then
from accel.runtime import compute
from accel.runtime.prefetch import Part, Submission
from accel.runtime.task import Task
from accel.system import fork
from accel.system.memory import Allocate
from accel.workers.packing import Packed, pack, unpack
from accel.workers.sent_files import SentFiles

Place = tuple[int, int] | None
"""The number of a single image in its batch, and how many these are, where there is one of each sample."""

Foreseen = Mapping[int, tuple[Step, ...]]
_NOTHING: Foreseen = {}


changing = fork.Lock()
"""Held, for a moment, by who says that values were submitted or are there: two threads may at once."""


class Whole(NamedTuple):
    """What a part of a batch is part of: the batch, what it is made of, and the part's index."""

    batch: torch.Tensor
    lazy: Any
    index: Any


class Images:
    """Images that come out alike: what a lazy tensor's companions know of it.

    Attributes:
        recipes: one of each. interleaved: the memory of an image is ordered [height, width, channels].
        made: the shape, dtype and order (as ``interleaved``) that the recipes come out with.
        progress: how far they are computed; see ``accel.lazy.state``.
        since: casts and orders recorded since they were submitted; set before ``progress``, which others may see.
        member: their place in a batch.
    """

    __slots__ = ("__weakref__", "interleaved", "made", "member", "progress", "recipes", "since")

    recipes: Sequence[Recipe]
    interleaved: bool
    made: tuple[tuple[int, int, int], torch.dtype, bool]
    progress: Any
    since: tuple[Step, ...]
    member: Member | None

    @property
    def selection(self) -> Selection:
        """The backend that runs them."""
        return selection_of(self.recipes)

    @property
    def part(self) -> Part | None:
        """What it has of a submission."""
        return self.progress if isinstance(self.progress, Part) else None

    @property
    def begun(self) -> bool:
        """Whether something of it was submitted, or is computed."""
        return self.progress is not None and not isinstance(self.progress, Whole)

    @property
    def together(self) -> bool:
        """Whether others are to be computed with it."""
        return self.member is not None and self.member.number in self.member.batch.together

    def submitted(self, part: Part) -> None:
        """Have the values taken from a submission, unless they are there."""
        with changing:
            if not self.begun or isinstance(self.progress, Part):
                self.since, self.progress = (), part

    def succeed(self, other: Images, progress: Any, since: tuple[Step, ...]) -> None:
        """Take the place of ``other``, which it was made from and which is not expected to be used any more."""
        self.since, self.progress = since, progress
        if other.member is not None:
            other.member.batch.add(self, other.member)


class Member(NamedTuple):
    """A lazy tensor's place in its batch.

    Attributes:
        indices: in the dataset, of what lies along the tensor's first axis or of a single image.
    """

    batch: Batch
    number: int
    indices: tuple[Any, ...] | None = None
    place: Place = None

    def where(self, position: int | None) -> str:
        """Say for a message where an image of the tensor comes from, so far as the tensor itself cannot."""
        if position is None:
            return ""
        where = ""
        if self.place is not None and self.place[1] > 1:
            where = f" (image {self.place[0]} of a batch of {self.place[1]})"
        return where if self.indices is None else f"{where} (dataset index {self.indices[position]})"


class Batch:
    """Lazy tensors that came together, in order; refers to them weakly.

    Attributes:
        loader: the number of the DataLoader whose worker made it, 0 for one without workers; None: of no DataLoader.
        together: the numbers of those that are computed with each other: samples that nobody stacked.
        submitted: whether its tensors were submitted.
        arrived: the recipes of members that have come in a message, until they are taken.
    """

    def __init__(self, loader: int | None = None) -> None:
        self.loader = loader
        self.together: frozenset[int] = frozenset()
        self.submitted = False
        self._lock = fork.Lock()
        self._members: dict[int, list[weakref.ref[Images]]] = {}  # each with what became of it, in order
        self.arrived: dict[int, Sequence[Recipe]] = {}

    def add(self, images: Images, member: Member) -> None:
        """Let images stand in a place, as long as somebody refers to them; what they were made from, no longer."""
        images.member = member
        self._members.setdefault(member.number, []).append(weakref.ref(images))

    def _current(self) -> dict[int, Images]:
        """What stands in each place, if somebody still refers to it."""
        places = {number: [ref() for ref in refs] for number, refs in sorted(self._members.items())}
        return {
            number: images
            for number, each in places.items()
            for images in each
            if images is not None and images.member is not None and images.member.batch is self
        }

    def beside(self, wanted: Images) -> list[Images]:
        """The images of which nothing is computed or submitted, in order, with the wanted one in its own place."""
        assert wanted.member is not None
        states = self._current() | {wanted.member.number: wanted}
        expected = {number: each for number, each in states.items() if each is wanted or not each.begun}
        return [each for _, each in sorted(expected.items())]

    def compute(self, wanted: Images, allocate: Allocate) -> None:
        """Make those ready that are computed together with one, unless that has been done."""
        with self._lock:
            if not wanted.together:
                return
            members = [each for each in self.beside(wanted) if each.together and each.progress is None]
            results = compute.several([(each.recipes, each.made[2]) for each in members], allocate)
            self.together = frozenset()
            for each, result in zip(members, results, strict=True):
                if not isinstance(result, Exception):
                    each.progress = result
                elif each is wanted:
                    raise result

    def sends(self, images: Images) -> bool:
        """Whether to send the whole batch when this member is pickled: it leaves the worker that made it."""
        assert images.member is not None
        made_here = self.loader is not None and get_worker_info() is not None
        return made_here and self._current().get(images.member.number) is images

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all members in one message, each file once. Nothing is decoded and nothing can fail: this may run in a
        queue's feeder thread."""
        states = self._current()
        recipes = joined([images.recipes for images in states.values()])
        lengths = {number: len(images.recipes) for number, images in states.items()}
        return _open, (self.loader, pack(recipes), lengths)


def _open(loader: int | None, packed: Packed | SentFiles | Rows, lengths: dict[int, int]) -> Batch:
    batch, recipes, first = Batch(loader), unpack(packed), 0
    for number, length in lengths.items():
        own = recipes if length == len(recipes) else recipes[first : first + length]
        batch.arrived[number] = own if length > 1 else tuple(own)  # to plan an image alone, numbers are of no use
        first += length
    return batch


def compute_together(states: Iterable[Images]) -> None:
    """Have these computed together, from the first use of one of them on."""
    batch, several = Batch(), tuple(states)
    batch.together = frozenset(range(len(several)))
    for number, images in enumerate(several if len(several) > 1 else ()):
        batch.add(images, Member(batch, number))


def companions(images: Images) -> list[Images]:
    """What to submit with a lazy tensor: its whole batch, or what became of that, unless some of it was submitted."""
    batch = None if images.member is None else images.member.batch
    if batch is None or batch.submitted:
        return [images]
    batch.submitted = True
    return [each for each in batch.beside(images) if each.selection == images.selection]


def submit(states: Sequence[Images], foreseen: Foreseen = _NOTHING) -> Submission:
    """One submission of lazy tensors, which get their parts of it; see ``coalesce``."""
    submission, parts = coalesce(states, foreseen)
    for each, part in zip(states, parts, strict=True):
        each.submitted(part)
    return submission


def coalesce(states: Sequence[Images], foreseen: Foreseen = _NOTHING) -> tuple[Submission, list[Part]]:
    """Make one submission, with a task for all that come out alike, and the part of each in it.

    ``foreseen``: casts and orders that are expected to be recorded next, by the place in the batch.
    """
    alike: dict[Any, list[Sequence[Recipe]]] = {}
    places = []
    for images in states:
        steps = () if images.member is None else foreseen.get(images.member.number, ())
        orders = [params[0] == torch.channels_last for name, params in steps if name == "contiguous"]
        casts = tuple(step for step in steps if step[0] != "contiguous")
        key = images.made, [images.made[2], *orders][-1], steps
        recipes = alike.setdefault(key, [])
        places.append((key, sum(map(len, recipes))))
        recipes.append(then(images.recipes, casts) if casts else images.recipes)
    owners = Counter(key for key, _ in places)
    tasks = {key: Task(joined(recipes), key[1], owners[key]) for key, recipes in alike.items()}
    submission = Submission(tuple(tasks.values()))
    return submission, [Part(submission, tasks[key], first, key[2]) for key, first in places]
