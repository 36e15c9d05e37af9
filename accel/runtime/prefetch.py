"""Where submissions to a device wait, and from where they start.

They go along a **lane**, one for each DataLoader: at most ``prefetch`` are under way or unused, the others wait as
recipes; one that is used, or that nobody refers to any more, makes room for the next. Until it is known to which
device a lane leads, all of them wait.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

import torch
from torch.utils.data import get_worker_info

from accel.backend import backend_of
from accel.options import AcceleratorOptions, Selection
from accel.recipe import Recipe
from accel.runtime import materialize, streams, submissions, work_queue
from accel.runtime.submissions import Submission
from accel.runtime.work_queue import Pool
from accel.system import counters, fork

_LAUNCHERS = 2  # for each device: one plans and uploads while the other waits for its decoders
_LANES = 64


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
        pool = work_queue.pool(str(device), _LAUNCHERS)

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
        self._pool.put(partial(submissions.run, submission.tasks, self.device))


# -- which lane, and where it leads -------------------------------------------------------------------------

_lanes: OrderedDict[tuple[Selection, int], Lane] = OrderedDict()
_learned: dict[Selection, set[torch.device]] = {}
_lock = fork.Lock()


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
    selection = materialize.selection_of(recipes)
    if not isinstance(selection.options, AcceleratorOptions) or get_worker_info() is not None:
        return None
    device = lane(selection, loader).device
    if device is None or not usable(selection, device):
        return None
    return submissions.now(recipes, interleaved, device).to("cpu")


def usable(selection: Selection, device: torch.device) -> bool:
    """Whether the selection's backend may compute on a device in this process, now."""
    options = selection.options
    if not isinstance(options, AcceleratorOptions) or get_worker_info() is not None:
        return False
    own = options.device is not None and torch.device(options.device).type == device.type
    return (own or device.type in backend_of(selection).devices) and streams.usable(device)


def _count(place: int) -> int:
    with _lock:
        return sum(way.counts()[place] for way in _lanes.values())


counters.show("in flight", lambda: _count(0) + submissions.on_host_now())
counters.show("waiting", lambda: _count(1))


def _in_child() -> None:
    _lanes.clear()
    _learned.clear()


fork.register(in_child=_in_child)
