"""Late images on their way: programs that run ahead of whoever will use their results, on the host or a device.

A **task** is one program: images that come out alike, as one tensor. A **submission** is what starts together, such
as a batch. Submissions to a device go along a **lane**, one for each DataLoader: at most ``prefetch`` are under way
or unused, the others wait as recipes; one that is used, or that nobody refers to any more, makes room for the next.
Until it is known which device that is, all of them wait.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel import counters, fork, pools, realise, streams
from accel.backend import AcceleratorOptions
from accel.errors import DecodeError
from accel.pools import Pool
from accel.recipe import Recipe
from accel.switch import Selection
from accel.team import cores

_LAUNCHERS = 2  # for each device: one plans and uploads while the other waits for its decoders
_LANES = 64


class Task:
    """One program: images that come out alike.

    Attributes:
        owners: how many late tensors have a part in it.
        future: its result [images, channels, height, width].
    """

    def __init__(self, recipes: tuple[Recipe, ...], interleaved: bool, owners: int = 1) -> None:
        self.recipes = recipes
        self.interleaved = interleaved
        self.owners = owners
        self.future: Future[torch.Tensor] = Future()
        self._event: Any = None

    def run(self, device: torch.device | None) -> None:
        """Compute it on a device, or (None) on the host; unless it was cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            if device is None:
                result = realise.tensors(self.recipes, interleaved=self.interleaved)
            else:
                result, self._event = streams.aside(device, lambda: self._launch(device))
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def _launch(self, device: torch.device) -> torch.Tensor:
        return realise.tensors_on(device, self.recipes, interleaved=self.interleaved)

    def result(self) -> torch.Tensor:
        """The result, which on a device may not be complete yet; the caller's current stream waits for it."""
        return streams.arrive(self.future.result(), self._event)

    def error(self) -> BaseException | None:
        """What went wrong, once it has run."""
        return None if self.future.cancelled() else self.future.exception()

    def call_when_done(self, function: Callable[[Task], None]) -> None:
        """Call ``function`` with this task when it has run, or was cancelled."""
        functions = [function]  # emptied then, for the future would keep it
        self.future.add_done_callback(lambda _: functions.pop()(self))


class Submission:
    """Tasks that start together. When nothing refers to it any more, what has not run never will."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tuple(tasks)
        self.number = next(_numbers)
        self.lane: Lane | None = None
        self._process = os.getpid()

    @property
    def foreign(self) -> bool:
        """Whether it was made before this process was forked: it will not be heard of here."""
        return self._process != os.getpid()

    def __del__(self) -> None:
        if not self.foreign:
            for task in self.tasks:
                task.future.cancel()
            if self.lane is not None:
                self.lane.leave(self)


class Part:
    """What one late tensor has of a submission: some successive images of a task.

    Attributes:
        first: its first image, of the task's. dtype, interleaved: of its values.
        shared: somebody else takes them too.
    """

    __slots__ = ("_taken", "dtype", "first", "interleaved", "shared", "submission", "task")

    def __init__(
        self, submission: Submission, task: Task, first: int, dtype: torch.dtype, *, shared: bool = False
    ) -> None:
        self.submission = submission
        self.task = task
        self.first = first
        self._taken = False
        self.dtype = dtype
        self.interleaved = task.interleaved
        self.shared = shared

    def twin(self) -> Part:
        """The same part for somebody else, who gets a copy of what is on a device."""
        return Part(self.submission, self.task, self.first, self.dtype, shared=True)

    def __str__(self) -> str:
        lane = self.submission.lane
        if lane is None:
            return "its values are computed on the host" if self.task.future.done() else "on its way, on the host"
        if lane.device is None:
            return "waits until it is known on which device it is used"
        return "waits for its turn" if lane.waits(self.submission) else f"launched on {lane.device}"

    def take(self, count: int) -> torch.Tensor | None:
        """The values [count, channels, height, width], which nobody else has; on the submission's device.

        Waits for the host's part of the work, and has the caller's current stream wait for the device's.

        None where there is nothing to be had: they have been taken, it is not known what device they should go to,
        they were submitted before this process was forked or with others, one of which failed.

        Raises:
            DecodeError: an image cannot be decoded.
        """
        if self._taken or self.submission.foreign:
            return None
        lane = self.submission.lane
        if lane is not None and lane.device is None:
            return None
        self._taken = not self.shared
        try:
            if lane is not None:
                lane.demand(self.submission)
            result = self.task.result()
            if self.shared and lane is not None:
                return result[self.first : self.first + count].clone()
            return _apart(result, self.first, count)
        except CancelledError:
            return None
        except DecodeError as error:
            if self.task.owners > 1:
                return None
            raise error.again() from error.__cause__
        finally:
            if lane is not None:
                lane.leave(self.submission)


def _apart(batch: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """Some images of a batch, as a tensor that shares nothing but memory with others (no version counter, as views)."""
    offset, shape = first * batch.stride(0), (count, *batch.shape[1:])
    images = torch.empty(0, dtype=batch.dtype, device=batch.device)
    return images.set_(batch.untyped_storage(), batch.storage_offset() + offset, shape, batch.stride())


class Lane:
    """Submissions of one origin to the device of one selection, in order.

    None of its methods waits for anything, whoever calls them: a pin thread, the garbage collector, two threads at
    once. What is asked for is done here, or by the thread that is doing such a thing just now.
    """

    def __init__(self, options: AcceleratorOptions) -> None:
        self.device: torch.device | None = None
        self._pool: Pool
        self._prefetch = options.prefetch
        self._waiting: dict[int, weakref.ref[Submission]] = {}
        self._under_way: set[int] = set()
        self._inbox: deque[Callable[[], None]] = deque()
        self._busy = threading.Lock()
        self._process = os.getpid()

    def lead(self, device: torch.device) -> None:
        """Let it lead to this device from now on."""
        pool = pools.pool(str(device), _LAUNCHERS)

        def lead() -> None:
            self.device, self._pool = device, pool

        self._do(lead)

    def enter(self, submission: Submission) -> None:
        """Let a submission wait for its turn."""
        submission.lane = self
        number, reference = submission.number, weakref.ref(submission)
        self._do(lambda: self._waiting.__setitem__(number, reference))

    def demand(self, submission: Submission) -> None:
        """Somebody waits for it: start it now, unless it has been started."""

        def start() -> None:
            if self._waiting.pop(submission.number, None) is not None:
                self._start(submission)

        self._do(start)

    def leave(self, submission: Submission) -> None:
        """Somebody has its results, or nobody will: the next may start."""
        number = submission.number

        def leave() -> None:
            self._waiting.pop(number, None)
            self._under_way.discard(number)

        self._do(leave)

    def waits(self, submission: Submission) -> bool:
        """Whether a submission has not been started."""
        return submission.number in self._waiting

    def counts(self) -> tuple[int, int]:
        """How many submissions are under way or unused, and how many wait."""
        return len(self._under_way), len(self._waiting)

    def _do(self, change: Callable[[], None]) -> None:
        if self._process != os.getpid():
            return
        self._inbox.append(change)
        while self._inbox and self._busy.acquire(blocking=False):
            try:
                while self._inbox:
                    self._inbox.popleft()()
                while self.device is not None and self._waiting and len(self._under_way) < self._prefetch:
                    submission = self._waiting.pop(next(iter(self._waiting)))()
                    if submission is not None:
                        self._start(submission)
                    del submission
            finally:
                self._busy.release()

    def _start(self, submission: Submission) -> None:
        self._under_way.add(submission.number)
        self._pool.put(partial(_run, submission.tasks, self.device))


def on_host(tasks: Sequence[Task]) -> None:
    """Run tasks on the host, side by side."""
    pool = pools.pool("host", cores())
    for task in tasks:
        _on_host.add(task)
        pool.put(partial(_run, (task,), None))


def _run(tasks: tuple[Task, ...], device: torch.device | None, now: bool) -> None:
    for task in tasks:
        if now:
            task.run(device)
        else:  # the interpreter is ending: whoever still waits for the result computes it
            task.future.cancel()
        _on_host.discard(task)


# -- which lane, and where it leads -------------------------------------------------------------------------

_numbers = itertools.count()
_lanes: OrderedDict[tuple[Selection, int], Lane] = OrderedDict()
_learned: dict[Selection, set[torch.device]] = {}
_on_host: set[Task] = set()
_lock = threading.Lock()


def lane(selection: Selection, loader: int) -> Lane:
    """The lane of a loader (its number) or, with 0, of this thread.

    It leads to the ``device`` option or, as long as there was only one for all lanes, to where others lead.
    """
    origin = loader or -threading.get_ident()
    options = selection.options
    assert isinstance(options, AcceleratorOptions)
    with _lock:
        key = selection, origin
        if key not in _lanes:
            known = _learned.setdefault(selection, set())
            if options.device is not None and not known:
                known.add(streams.indexed(torch.device(options.device)))
            _lanes[key] = Lane(options)
            if len(_lanes) > _LANES:
                _lanes.popitem(last=False)
        _lanes.move_to_end(key)
        found, known = _lanes[key], _learned[selection]
    if found.device is None and len(known) == 1:
        found.lead(next(iter(known)))
    return found


def learn(selection: Selection, way: Lane, device: torch.device) -> None:
    """A user sent a result of this lane to ``device``."""
    if way.device != device:
        with _lock:
            _learned.setdefault(selection, set()).add(device)
        way.lead(device)


def compute(recipes: tuple[Recipe, ...], interleaved: bool, loader: int) -> torch.Tensor | None:
    """Images computed now, where their lane leads to, and brought to the host; None if that is nowhere.

    Raises:
        DecodeError: an image cannot be decoded.
    """
    selection = realise.selection_of(recipes)
    if not isinstance(selection.options, AcceleratorOptions) or get_worker_info() is not None:
        return None
    device = lane(selection, loader).device
    if device is None or not usable(selection, device):
        return None
    return now(recipes, interleaved, device).to("cpu")


def now(recipes: tuple[Recipe, ...], interleaved: bool, device: torch.device) -> torch.Tensor:
    """Images computed on a device, by this thread; see ``Task.result``."""
    task = Task(recipes, interleaved)
    task.run(device)
    return task.result()


def usable(selection: Selection, device: torch.device) -> bool:
    """Whether the selection's backend may compute on a device in this process, now."""
    options = selection.options
    if not isinstance(options, AcceleratorOptions) or get_worker_info() is not None:
        return False
    own = options.device is not None and torch.device(options.device).type == device.type
    return (own or device.type in selection.backend.devices) and streams.usable(device)


def _count(place: int) -> int:
    with _lock:
        return sum(way.counts()[place] for way in _lanes.values())


counters.show("in flight", lambda: _count(0) + len(_on_host))
counters.show("waiting", lambda: _count(1))


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for held in (_lanes, _learned, _on_host):
        held.clear()


fork.register(in_child=_in_child)
