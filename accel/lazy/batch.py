"""Lazy tensors that belong together (companions), as the samples or the tensors of one batch.

A request to one of them is carried out for all that are still expected to be used: they are computed together if they
were not stacked, submitted together, and sent to the parent in one message, each file once.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from accel.processes.packing import PackedRecipes, pack, unpack
from accel.processes.sending import raised_by_receiver
from accel.processes.sent_files import SentFiles
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Step, selection_of
from accel.recipes.rows import Rows, joined, then
from accel.runtime import compute
from accel.runtime.prefetch import Submission, TaskSlice
from accel.runtime.task import Task
from accel.system import fork, worker_threads
from accel.system.memory import Allocate

Place = tuple[int, int] | None
"""(number, count): the number of a single image in its batch of ``count`` samples; None if samples have several."""

Foreseen = Mapping[int, tuple[Step, ...]]
_NOTHING: Foreseen = {}


changing = fork.Lock()
"""Held for a moment by a thread that marks values as submitted or done, since two threads may do so at once."""


class Whole(NamedTuple):
    """The batch that a tensor is a part of, the batch's state, and the part's index."""

    batch: torch.Tensor
    lazy: Any
    index: Any


class Images:
    """Images with results of one shape and dtype: the part of a lazy tensor's state that its companions use.

    Attributes:
        recipes: one per image.
        made: the shape and dtype of the recipes' results, and whether they are interleaved (``Layout``).
        progress: how far they are computed; see ``accel.lazy.state``.
        since: casts and memory orders recorded since they were submitted; set before ``progress``, which other threads
            read.
        member: their place in a batch; None: they are in none.
    """

    __slots__ = ("__weakref__", "made", "member", "progress", "recipes", "since")

    recipes: Sequence[Recipe]
    made: tuple[tuple[int, int, int], torch.dtype, bool]
    progress: Any
    since: tuple[Step, ...]
    member: Member | None

    @property
    def selection(self) -> Selection:
        """The backend that runs them."""
        return selection_of(self.recipes)

    @property
    def part(self) -> TaskSlice | None:
        """Its part of a submission; None if it has none."""
        return self.progress if isinstance(self.progress, TaskSlice) else None

    @property
    def started(self) -> bool:
        """Whether it was submitted, or is computed."""
        return self.progress is not None and not isinstance(self.progress, Whole)

    @property
    def together(self) -> bool:
        """Whether others will be computed with it."""
        return self.member is not None and self.member.number in self.member.batch.together

    def submitted(self, part: TaskSlice) -> None:
        """Have the values taken from a submission, unless they are computed already."""
        with changing:
            if not self.started or isinstance(self.progress, TaskSlice):
                self.since, self.progress = (), part

    def succeed(self, other: Images, progress: Any, since: tuple[Step, ...]) -> None:
        """Take the place of ``other`` in its batch: this was made from it, and it will hardly be used any more."""
        self.since, self.progress = since, progress
        if other.member is not None:
            other.member.batch.add(self, other.member)


class Member(NamedTuple):
    """A lazy tensor's place in its batch.

    Attributes:
        indices: the dataset indices along the tensor's first axis, or that of a single image; None: not known.
    """

    batch: Batch
    number: int
    indices: tuple[Any, ...] | None = None
    place: Place = None

    def where(self, position: int | None) -> str:
        """A text for messages: the place in the batch and the dataset index of an image, as far as they are known."""
        if position is None:
            return ""
        where = ""
        if self.place is not None and self.place[1] > 1:
            where = f" (image {self.place[0]} of a batch of {self.place[1]})"
        return where if self.indices is None else f"{where} (dataset index {self.indices[position]})"


class Batch:
    """Lazy tensors that belong together, in order; refers to them weakly.

    Attributes:
        loader: the number of the DataLoader whose worker made it, 0 for one without workers; None: of no DataLoader.
        together: the numbers of those that will be computed together: samples that were not stacked.
        submitted: whether its tensors were submitted.
        arrived: the recipes of members that came in a message, until they are taken.
    """

    def __init__(self, loader: int | None = None) -> None:
        self.loader = loader
        self.together: frozenset[int] = frozenset()
        self.submitted = False
        self._lock = fork.Lock()
        self._members: dict[int, list[weakref.ref[Images]]] = {}  # each followed by those made from it
        self.arrived: dict[int, Sequence[Recipe]] = {}

    def add(self, images: Images, member: Member) -> None:
        """Put images in a place, for as long as they are referred to; those that they were made from leave it."""
        images.member = member
        self._members.setdefault(member.number, []).append(weakref.ref(images))

    def _current(self) -> dict[int, Images]:
        """The images in each place that are still referred to."""
        places = {number: [ref() for ref in refs] for number, refs in sorted(self._members.items())}
        return {
            number: images
            for number, each in places.items()
            for images in each
            if images is not None and images.member is not None and images.member.batch is self
        }

    def beside(self, images: Images) -> list[Images]:
        """The images that are neither computed nor submitted, in order, with this one in its place."""
        assert images.member is not None
        states = self._current() | {images.member.number: images}
        expected = {number: each for number, each in states.items() if each is images or not each.started}
        return [each for _, each in sorted(expected.items())]

    def compute(self, images: Images, allocate: Allocate) -> None:
        """Compute the images that are computed together with one, unless that has been done; they are then ready."""
        with self._lock:
            if not images.together:
                return
            members = [each for each in self.beside(images) if each.together and each.progress is None]
            results = compute.several([(each.recipes, each.made[2]) for each in members], allocate)
            self.together = frozenset()
            for each, result in zip(members, results, strict=True):
                if not isinstance(result, Exception):
                    each.progress = result
                elif each is images:
                    raise result

    def sends(self, images: Images) -> bool:
        """Whether to send the whole batch when this member is pickled: if it leaves the worker that made it."""
        assert images.member is not None
        made_here = self.loader is not None and get_worker_info() is not None
        return made_here and self._current().get(images.member.number) is images

    @raised_by_receiver
    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all members in one message, each file once. This decodes nothing."""
        states = self._current()
        recipes = joined([images.recipes for images in states.values()])
        lengths = {number: len(images.recipes) for number, images in states.items()}
        interleaved = all(images.made[2] for images in states.values())
        return _open, (self.loader, pack(recipes, interleaved, len(states) == 1), lengths)


def _open(loader: int | None, packed: PackedRecipes | SentFiles | Rows, lengths: dict[int, int]) -> Batch:
    batch, recipes, first = Batch(loader), unpack(packed), 0
    worker_threads.arrived(loader)
    for number, length in lengths.items():
        own = recipes if length == len(recipes) else recipes[first : first + length]
        batch.arrived[number] = own if length > 1 else tuple(own)  # for a single image, rows are of no use
        first += length
    return batch


def compute_together(states: Iterable[Images]) -> None:
    """Have these computed together when one of them is first used."""
    batch, several = Batch(), tuple(states)
    batch.together = frozenset(range(len(several)))
    for number, images in enumerate(several if len(several) > 1 else ()):
        batch.add(images, Member(batch, number))


def companions(images: Images) -> list[Images]:
    """The images to submit with a lazy tensor: its whole batch, unless that was submitted; else itself alone."""
    batch = None if images.member is None else images.member.batch
    if batch is None or batch.submitted:
        return [images]
    batch.submitted = True
    return [each for each in batch.beside(images) if each.selection == images.selection]


def submit(states: Sequence[Images], foreseen: Foreseen = _NOTHING, beside: Sequence[Task] = ()) -> Submission:
    """Submit lazy tensors together, and give each its part of the submission; see ``coalesce``."""
    submission, parts = coalesce(states, foreseen, beside)
    for each, part in zip(states, parts, strict=True):
        each.submitted(part)
    return submission


def coalesce(
    states: Sequence[Images], foreseen: Foreseen = _NOTHING, beside: Sequence[Task] = ()
) -> tuple[Submission, list[TaskSlice]]:
    """Make one submission, with one task for all with results of the same shape and dtype, and each one's part of it.

    ``beside``: tasks that are submitted with them.
    ``foreseen``: casts and memory orders that are expected to be recorded next, by the place in the batch.
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
    tasks = {key: Task(joined(each), key[1], owners[key], _size(key[0], key[2], each)) for key, each in alike.items()}
    submission = Submission((*tasks.values(), *beside))
    return submission, [TaskSlice(submission, tasks[key], first, key[2]) for key, first in places]


def _size(made: Any, steps: tuple[Step, ...], recipes: Sequence[Sequence[Recipe]]) -> int:
    """The bytes of the results of recipes, each as ``Images.made``, after these casts and memory orders."""
    dtype: torch.dtype = [made[1], *(params[0] for name, params in steps if name == "to")][-1]
    return int(sum(map(len, recipes)) * prod(made[0]) * dtype.itemsize)
