"""How far an iterator of a DataLoader has come: what its sampler gave, what was handed out, and what workers noted."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, cycle, islice, repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader

from accel.errors import ResumeError
from accel.processes import slot_pool
from accel.resuming import batch_record, random_states
from accel.resuming.random_states import Found, States


@dataclass(frozen=True)
class Task:
    """In place of a batch's indices: what is done with the batch."""

    indices: Any

    def __len__(self) -> int:
        return len(self.indices)


class Recorded(Task):
    """It is recorded; it is neither computed nor sent."""


class Digested(Recorded):
    """In place of the batch, its content digest is sent."""


class Checked(Task):
    """It is made as always, and recorded again: both must be the same."""


@dataclass(frozen=True)
class Restored(Task):
    """A worker goes back to before this batch, records it and says whether it is the same; it goes on behind it."""

    states: States
    digest: str


class Note(NamedTuple):
    """What is known of a batch: its indices, the random states before it, how it was recorded (as it was noted, see
    ``batch_record``, or its digest), and what its worker has found that draws or counts and is not restored."""

    indices: Any
    states: States
    record: bytes | str
    unrestored: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return self.record if isinstance(self.record, str) else batch_record.state_digest(self.record)


class Order:
    """The indices that a sampler gave in an epoch.

    Attributes:
        before_next: the random states before the sampler's first ``next()``.
        drawn: how many times it gave indices.
    """

    def __init__(self, before_next: States) -> None:
        self.before_next, self.drawn = before_next, 0
        self._hasher = blake2b(digest_size=16)

    def add(self, indices: Any, times: int = 1) -> None:
        """Note what the sampler gave; ``times``: in so many batches."""
        self.drawn += times
        each = indices if isinstance(indices, (list, tuple, range, np.ndarray, torch.Tensor)) else (indices,)
        try:
            self._hasher.update(array("q", each))
        except (TypeError, OverflowError):  # no integers
            for one in each:
                self._hasher.update(batch_record.state_digest(batch_record.noted(one)).encode())

    def digest(self) -> str:
        return self._hasher.hexdigest()


def plain_indices(indices: Any) -> Any:
    """Indices as plain numbers, strings and containers of them.

    Raises:
        TypeError: they are something else.
    """
    if type(indices) in (list, tuple):
        return type(indices)(map(plain_indices, indices))
    if isinstance(indices, (np.generic, np.ndarray, torch.Tensor)):
        return indices.tolist()
    if not isinstance(indices, (int, float, str, type(None))):
        raise TypeError(f"indices of type {type(indices).__name__} cannot be saved")
    return indices


instead: ContextVar[tuple[type[Task], int]] = ContextVar("accel_instead", default=(Recorded, 0))
"""What is done with the first batches of an epoch that is begun here, and with how many."""


def found(loader: DataLoader[Any]) -> Found:
    """What a loader draws from and counts with in this process."""
    roots = {name: getattr(loader, name) for name in ("generator", "sampler", "batch_sampler")}
    if not loader.num_workers:
        roots |= {"dataset": loader.dataset, "collate_fn": loader.collate_fn}
    return Found(roots)


def _taken(iterator: Iterator[Any], count: int) -> list[Any]:
    """The next items of an iterator; of a list that a generator yields from, as in torch's samplers, as a slice."""
    taken = list(islice(iterator, min(count, 1)))  # the list is drawn
    inner: Any = getattr(iterator, "gi_yieldfrom", None)
    if type(inner).__name__ == "list_iterator":
        _, (items,), place = inner.__reduce__()
        taken += items[place : place + count - 1]
        inner.__setstate__(place + len(taken) - 1)
    return taken + list(islice(iterator, count - len(taken)))


class Progress:
    """How far an iterator has come in its epoch.

    Attributes:
        found: what it draws from and counts with in this process; its generators. base_seed: of its workers.
        order: what its sampler gave; None: it was not asked yet.
        handed: batches that were handed out. turn: the number of the worker whose batch is the next.
        yielded: those of them that raised no error. ended: whether there are no more.
        on_entry: the random states before it was made.
        notes: for each worker (or this process) of the last batch that was handed out; None: there was none, or it
            raised an error.
        saved: the state that it goes on from, until it does. verify: how many batches of the epoch are checked.
        tasks: of its next batches, if they are not just made.
        last: the last indices of its sampler, or the task in their place.
        replays: whether it goes on behind all earlier batches of its epoch, recorded again; otherwise behind the last
            ones.
        epochs: how many epochs it has begun. rest: the samples that are left of its first epoch, if another number of
            ranks began with it; None: its sampler has them.
    """

    def __init__(
        self, loader: DataLoader[Any], saved: dict[str, Any] | None, verify: int, rest: list[int] | None
    ) -> None:
        self.workers = loader.num_workers
        self.found = found(loader)
        self.generators = self.found.generators
        self.saved, self.verify, self.base_seed = saved, verify, 0
        self.epochs = 1 if saved is None else saved["epochs"] + (not saved["running"])
        self.replays = saved is not None and saved["replays"]
        self.last: Any = None
        self.rest = rest
        self.notes: list[Note | None] = [None] * max(self.workers, 1)
        self._arrived: dict[int, dict[int, Note]] = {worker: {} for worker in range(self.workers)}
        self._lost = set[int]()  # workers of which it is not known where they are
        self._before: States = {}
        self.order: Order | None = None
        self.handed, self.ended = 0, False
        self.begin()
        self.on_entry = self.before_iter

    def begin(self) -> None:
        """Begin with an epoch, before its sampler's ``iter()``."""
        if self.workers and self.handed and not self.ended:  # the last epoch was left early, with batches under way
            self._lost.update(range(self.workers))
        self.rest = self.rest if self.order is None else None
        self.order = None
        self.handed = self.yielded = self.turn = 0
        self.ended = False
        self._of_worker = [0] * max(self.workers, 1)
        self.before_iter = random_states.current(self.generators)
        self.tasks: Iterator[type[Task]] = chain(repeat(*instead.get()), repeat(Checked, self.verify))

    def follow(self, iterator: Any) -> None:
        """Begin to receive what its workers note."""
        self._iterator = weakref.ref(iterator)
        if self.workers:
            _followed[slot_pool.loader_number()] = self

    # -- what the sampler gives ----------------------------------------------------------------------------

    def next_indices(self, iterator: Any, draw: Callable[[Any], Any]) -> Any:
        """The next indices of the sampler, drawn by torch's own function.

        Raises:
            ResumeError: the sampler does not give again what it gave.
        """
        if self.order is None:
            self._begin_order(iterator)
        indices = draw(iterator)
        assert self.order is not None
        self.order.add(indices)
        self.last = indices if (task := next(self.tasks, None)) is None else task(indices)
        if not self.workers:
            if self.saved and self.replays and self.order.drawn == self.saved["handed"]:
                random_states.restore(self.saved["workers"][0]["states"], self.generators)
            self._before = random_states.current(self.generators)
        return self.last

    def _begin_order(self, iterator: Any) -> None:
        if self.saved is None:
            for arrived in self._arrived.values():  # of an epoch that was left early
                arrived.clear()
            self.order = Order(random_states.current(self.generators))
            if self.rest is not None:
                sampler = iterator._index_sampler
                iterator._sampler_iter = iter(BatchSampler(self.rest, sampler.batch_size, sampler.drop_last))
            return
        self.reposition(iterator, self.saved)

    def reposition(self, iterator: Any, saved: dict[str, Any]) -> None:
        """Have the sampler give again what it gave, and its workers go back to where they were."""
        began, own = saved["order"], self.generators
        if began is None:  # between two epochs
            self.order = Order(random_states.current(own))
        else:
            self.before_iter = began["before_iter"]
            random_states.restore(self.before_iter, own)
            iterator._sampler_iter = iter(iterator._index_sampler)
            if began["before_next"] is not None:
                random_states.restore(began["before_next"], own)
                self.order = Order(began["before_next"])
                if self.replays:
                    self.tasks = chain(repeat(Recorded, saved["handed"]), self.tasks)
                    return
                self._skip(iterator, saved["handed"])
        # a digest, and never bytes, which would be unpickled
        self.notes = [each and Note(each["indices"], each["states"], str(each["record"])) for each in saved["workers"]]
        if self.workers:
            self.turn = saved["turn"]
            iterator._worker_queue_idx_cycle = cycle(range(self.workers))
            list(islice(iterator._worker_queue_idx_cycle, self.turn))
            iterator._send_idx = iterator._rcvd_idx = self.handed
            for worker, note in enumerate(self.notes):
                if note is not None:
                    iterator._index_queues[worker].put((-1 - worker, Restored(note.indices, note.states, note.digest)))

    def _skip(self, iterator: Any, handed: int) -> None:
        """Draw the indices of the batches that were handed out."""
        assert self.order is not None
        self.handed = self.yielded = iterator._num_yielded = handed
        sampler = iterator._index_sampler
        if type(sampler) is BatchSampler and handed:  # at once
            rest = iter(sampler.sampler)
            indices = _taken(rest, handed * sampler.batch_size)
            iterator._sampler_iter = iter(BatchSampler(rest, sampler.batch_size, sampler.drop_last))
            self.order.add(indices, handed if len(indices) > (handed - 1) * sampler.batch_size else 0)
            self.last = indices[(handed - 1) * sampler.batch_size :]
        else:
            for indices in islice(iterator._sampler_iter, handed):
                self.order.add(indices)
                self.last = indices
        if self.order.drawn < handed:
            raise ResumeError(f"the sampler gives fewer batches than the {handed} that were handed out")

    # -- what is handed out --------------------------------------------------------------------------------

    def hand_out(self, worker: int, record: bytes | None = None) -> None:
        """Note that a worker's next batch is handed out; ``record``: how this process recorded it."""
        self.handed += 1
        self._of_worker[worker] += 1
        self.turn = (worker + 1) % max(self.workers, 1)
        if self.workers:
            self.notes[worker] = self._arrived[worker].pop(self._of_worker[worker], None)
        else:
            self.notes[0] = None if record is None else Note(None, self._before, record)
        (self._lost.add if self.notes[worker] is None else self._lost.discard)(worker)

    def arrive(self, worker: int, number: int, note: Note) -> None:
        """Receive what a worker noted of its batch with this number, counted from 1 in each epoch."""
        self._arrived[worker][number] = note

    def drawn(self) -> tuple[int, str]:
        """How many times the sampler gave indices in this epoch, and a digest of them."""
        return (0, "") if self.order is None else (self.order.drawn, self.order.digest())

    def unrestored(self) -> set[str]:
        """What draws or counts and is not restored, as far as it is known."""
        of_workers = (note.unrestored for note in self.notes if note)
        return set(self.found.unrestored(self.handed if self.epochs == 1 else 0)).union(*of_workers)

    def in_flight(self) -> int:
        """How many batches were drawn and not handed out in the state that it goes on from."""
        saved = self.saved
        return saved["order"]["drawn"] - saved["handed"] if saved and saved["running"] and saved["order"] else 0

    def is_whole(self) -> bool:
        """Whether every batch of this epoch was handed out while a backend was in force."""
        iterator = self._iterator()
        return iterator is None or self.ended or iterator._num_yielded == self.yielded

    def lost(self) -> list[int]:
        """The workers of which it is not known where they are."""
        return sorted(self._lost)

    def saved_parts(self) -> dict[str, Any]:
        """What a state says of this iterator."""
        notes = [
            note and {"indices": plain_indices(note.indices), "states": note.states, "record": note.digest}
            for note in self.notes
        ]
        parts: dict[str, Any] = {"epochs": self.epochs, "base_seed": self.base_seed, "workers": notes}
        if self.ended:
            return parts
        drawn, digest = self.drawn()
        before = None if self.order is None else self.order.before_next
        order = {"before_iter": self.before_iter, "before_next": before, "drawn": drawn, "digest": digest}
        return parts | {"handed": self.handed, "turn": self.turn, "order": order}


_followed: weakref.WeakValueDictionary[int, Progress] = weakref.WeakValueDictionary()  # by the loader's number


def arrived(batch: Any, loader: int, worker: int, number: int, *note: Any) -> Any:
    """A batch that arrives from a worker, whose note is kept."""
    if (progress := _followed.get(loader)) is not None:
        progress.arrive(worker, number, Note(*note))
    return batch
