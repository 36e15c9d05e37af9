"""Submissions of images to a device: where they wait, and when they start.

A **submission** is one or more tasks that start together, such as a batch. A **part** of it is the images that belong
to one lazy tensor. Submissions wait in a **queue**, one for each DataLoader: at most ``prefetch`` are under way or
unused, the others wait as recipes; one that is used, or that nobody refers to any more, makes room for the next. Until
the device of a queue is known, all of them wait.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel.backend import backend_of
from accel.errors import DecodeError
from accel.recipes.options import AcceleratorOptions, Selection
from accel.recipes.recipe import Recipe, Step, selection_of
from accel.runtime import small_requests, streams, task
from accel.runtime.task import Task, WorkQueue
from accel.system import counters, fork

_LAUNCHERS = 3  # for each device: one uploads while the others wait for their decoders
_MOST_QUEUES = 64
_FEWEST, _MOST, _SHARE = 2, 4, 16  # under way by default: more than the fewest only in that part of the memory
_numbers = itertools.count()
_taking = fork.Lock()


class Submission:
    """Tasks that start together. When nothing refers to it any more, those that have not run are cancelled."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks, self.number = tuple(tasks), next(_numbers)
        self.size = sum(task.size for task in self.tasks)  # bytes of the results
        self.queue: PrefetchQueue | None = None
        self._process = os.getpid()

    @property
    def foreign(self) -> bool:
        """Whether it was made before this process was forked, so that its results never arrive here."""
        return self._process != os.getpid()

    def __del__(
        self, process: Any = os.getpid, ending: Any = sys.is_finalizing, leave: Any = fork.leave_to_parent
    ) -> None:
        if self._process != process():
            leave(self.tasks)
        elif not ending():  # else this module's names and the threads may be gone
            for task in self.tasks:
                task.future.cancel()
            if self.queue is not None:
                self.queue.release(self)


@dataclass(slots=True, eq=False)
class TaskSlice:
    """Successive images of a task in a submission, those that belong to one lazy tensor.

    Attributes:
        first: the number of its first image in the task. steps: expected casts and orders, which the task has applied.
        shared: another part takes the same images. copied: and must not share their memory.
    """

    submission: Submission
    task: Task
    first: int
    steps: tuple[Step, ...] = ()
    shared: bool = False
    copied: bool = False
    _taken: bool = False

    def twin(self, copied: bool = False) -> TaskSlice:
        """The same images for another tensor, as a copy if they are on a device, or if ``copied``."""
        return TaskSlice(self.submission, self.task, self.first, self.steps, shared=True, copied=copied or self.copied)

    def __str__(self) -> str:
        queue = self.submission.queue
        if queue is None:
            return "its values are computed on the host" if self.task.future.done() else "on its way, on the host"
        if queue.device is None:
            return "waits until it is known on which device it is used"
        if self.task.hurried and small_requests.on_host(self.task.recipes, queue.device):
            return f"so small that the host computes it for {queue.device}"
        return "waits for its turn" if queue.is_waiting(self.submission) else f"launched on {queue.device}"

    def take(self, count: int) -> torch.Tensor | None:
        """The values [count, channels, height, width] on the submission's device, in memory of their own unless shared.

        Waits for the host's part of the work, and makes the caller's current stream wait for the device's.

        None if they are not available: they were taken already, the device to use is not known, they were submitted
        before this process was forked, or together with others, one of which failed.

        Raises:
            DecodeError: an image cannot be decoded.
        """
        queue = self.submission.queue
        with _taking:  # two tensors, of two threads, may have the same part
            if self._taken or self.submission.foreign or (queue is not None and queue.device is None):
                return None
            self._taken = not self.shared
        try:
            if queue is not None:
                queue.start_now(self.submission)
            result = self.task.result()
            if self.copied or (self.shared and queue is not None):
                return result[self.first : self.first + count].clone()
            return _detached(result, self.first, count)
        except CancelledError:
            return None
        except DecodeError as error:
            if self.task.owners > 1:
                return None
            raise error.again() from error.__cause__
        finally:
            if queue is not None:
                queue.release(self.submission)


def _detached(batch: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """Some images of a batch, as a tensor that shares memory with it but, unlike a view, no version counter."""
    offset, shape = first * batch.stride(0), (count, *batch.shape[1:])
    images = torch.empty(0, dtype=batch.dtype, device=batch.device)
    return images.set_(batch.untyped_storage(), batch.storage_offset() + offset, shape, batch.stride())


class PrefetchQueue:
    """The submissions of one origin (a loader or a thread) to the device of one selection, in order.

    No method ever waits, whoever calls it: a pin thread, the garbage collector, two threads at once. A change is made
    by the caller, or by the thread that is making changes at the moment.
    """

    def __init__(self, prefetch: int | None) -> None:
        """``prefetch``: see ``AcceleratorOptions``."""
        self.device: torch.device | None = None
        self.foreseen: dict[int, tuple[Step, ...]] = {}
        """Casts and orders expected after submitting, by a tensor's place in its batch; empty where they vary."""
        self._launchers: WorkQueue
        self.prefetch = prefetch
        self._waiting: dict[int, weakref.ref[Submission]] = {}
        self._under_way: dict[int, int] = {}  # the bytes of their results
        self._inbox: deque[Callable[[], None]] = deque()
        self._busy = threading.Lock()
        self._process = os.getpid()

    def set_device(self, device: torch.device) -> None:
        """Start submissions on this device from now on."""
        launchers = task.queue_named(str(device), _LAUNCHERS)

        def set_device() -> None:
            self.device, self._launchers = device, launchers

        self._do(set_device)

    def learn_steps(self, place: int, steps: tuple[Step, ...]) -> None:
        """Expect, for later tensors at this place, the steps that were recorded on a submitted one."""
        if self.foreseen.setdefault(place, steps) != steps:
            self.foreseen[place] = ()

    def add(self, submission: Submission) -> None:
        """Add a submission, which waits for its turn."""
        submission.queue = self
        number, reference = submission.number, weakref.ref(submission)
        self._do(lambda: self._waiting.__setitem__(number, reference))

    def start_now(self, submission: Submission) -> None:
        """Start a submission that somebody waits for, unless it has been started."""

        def start() -> None:
            if self._waiting.pop(submission.number, None) is not None:
                self._start(submission)

        self._do(start)

    def release(self, submission: Submission) -> None:
        """Let the next submission start, as this one's results were taken, or never will be."""
        number = submission.number

        def release() -> None:
            self._waiting.pop(number, None)
            self._under_way.pop(number, None)

        self._do(release)

    def is_waiting(self, submission: Submission) -> bool:
        return submission.number in self._waiting

    def counts(self) -> tuple[int, int]:
        """The number of submissions that are under way or unused, and the number that wait."""
        return len(self._under_way), len(self._waiting)

    def _do(self, change: Callable[[], None]) -> None:
        if self._process != os.getpid():
            return
        self._inbox.append(change)
        while self._inbox and self._busy.acquire(blocking=False):
            try:
                while self._inbox:
                    self._inbox.popleft()()
                while self.device is not None and self._waiting:
                    number, reference = next(iter(self._waiting.items()))
                    if (submission := reference()) is not None and not self._has_room(submission, self.device):
                        break
                    del self._waiting[number]
                    if submission is not None:
                        self._start(submission)
                    del submission
            finally:
                self._busy.release()

    def _has_room(self, submission: Submission, device: torch.device) -> bool:
        count, size = len(self._under_way), sum(self._under_way.values()) + submission.size
        if self.prefetch is not None:
            return count < self.prefetch
        return count < _FEWEST or (count < _MOST and size <= streams.memory(device) // _SHARE)

    def _start(self, submission: Submission) -> None:
        self._under_way[submission.number] = submission.size
        self._launchers.put(partial(task.run, submission.tasks, self.device))


# -- which queue, and for which device -----------------------------------------------------------------------

_queues: OrderedDict[tuple[Selection, int | tuple[int, int]], PrefetchQueue] = OrderedDict()
_known_devices: dict[tuple[Selection, int], set[torch.device]] = {}
_lock = fork.Lock()


def queue_of(selection: Selection, loader: int) -> PrefetchQueue:
    """The queue of a loader, given by its number, or with 0 of this thread and its current device.

    Its device is that of the ``device`` option, without an index this thread's current one; or else, if all other
    queues of threads with the same current device have the same one, theirs. (torch gives a loader's pin thread the
    current device of the thread that iterates.)
    """
    options = selection.options
    assert isinstance(options, AcceleratorOptions)
    current = _current_index(selection)
    with _lock:
        key = selection, loader or (threading.get_ident(), current)
        known = _known_devices.setdefault((selection, current), set())
        if key not in _queues:
            if options.device is not None and not known:
                known.add(streams.indexed(torch.device(options.device)))
            _queues[key] = PrefetchQueue(options.prefetch)
            if len(_queues) > _MOST_QUEUES:
                _queues.popitem(last=False)
        _queues.move_to_end(key)
        found = _queues[key]
    if found.device is None and len(known) == 1:
        found.set_device(next(iter(known)))
    return found


def _current_index(selection: Selection) -> int:
    """The number of this thread's current device of the type that a selection computes on."""
    options = selection.options
    given = options.device if isinstance(options, AcceleratorOptions) else None
    return streams.current_index(given or backend_of(selection).devices[0])


def learn_device(selection: Selection, queue: PrefetchQueue, device: torch.device) -> None:
    """Remember that a user sent a result of this queue to ``device``."""
    if queue.device != device:
        with _lock:
            _known_devices.setdefault((selection, _current_index(selection)), set()).add(device)
        queue.set_device(device)


def compute_on_device(recipes: Sequence[Recipe], interleaved: bool, loader: int) -> torch.Tensor | None:
    """Compute images now on the device of their queue, and copy them to the host; None if the device is not known."""
    selection = selection_of(recipes)
    computes = isinstance(selection.options, AcceleratorOptions) and get_worker_info() is None
    device = queue_of(selection, loader).device if computes else None
    if device is None or not usable(selection, device):
        return None
    return task.compute_now(recipes, interleaved, device).to("cpu")


def usable(selection: Selection, device: torch.device) -> bool:
    """Whether the selection's backend may compute on a device in this process, now."""
    options = selection.options
    if not isinstance(options, AcceleratorOptions) or get_worker_info() is not None:
        return False
    own = options.device is not None and torch.device(options.device).type == device.type
    return (own or device.type in backend_of(selection).devices) and streams.usable(device)


def _count(place: int) -> int:
    with _lock:
        return sum(queue.counts()[place] for queue in _queues.values())


counters.show("in flight", lambda: _count(0) + len(task.on_host))
counters.show("waiting", lambda: _count(1))
fork.register(in_child=_queues.clear)
fork.register(in_child=_known_devices.clear)
