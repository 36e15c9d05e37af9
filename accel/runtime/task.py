"""Tasks: images of one shape and dtype, computed ahead of use, on the host or on a device.

They run on queues with threads of their own, made when first needed, and anew in a forked child.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch

from accel.errors import emptied
from accel.recipes.recipe import Recipe
from accel.runtime import compute, small_requests, streams
from accel.system import fork, log
from accel.system.cores import cores

Work = Callable[[bool], None]
"""A function that a queue calls with True, or with False if the interpreter ends before its turn."""


class WorkQueue:
    """A queue of work for a few threads, first in, first out."""

    def __init__(self, name: str, threads: int) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._ending = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"accel-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, work: Work) -> None:
        """Add work. Never waits, so a finaliser, which may run inside any other call, may call it."""
        if self._ending:
            work(False)
        else:
            self._queue.put(work)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have no work running inside the block: its threads wait for the block's end."""
        idle, end = SimpleQueue[None](), SimpleQueue[None]()

        def wait(now: bool) -> None:
            idle.put(None)
            end.get()

        try:
            for _ in self._threads:
                self._queue.put(wait)
            for _ in self._threads:
                idle.get()
            yield
        finally:
            for _ in self._threads:
                end.put(None)

    def end(self) -> None:
        """Wait for the work that is running; what is still queued is called with False."""
        self._ending = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        log.is_ours()
        while (work := self._queue.get()) is not None:
            work(not self._ending)
            del work  # release it, and what it refers to, before waiting for the next


_queues: dict[str, WorkQueue] = {}
_lock = fork.Lock()


def queue_named(name: str, threads: int) -> WorkQueue:
    """The queue of this name, made with so many threads if there is none."""
    with _lock:
        if name not in _queues:
            _queues[name] = WorkQueue(name, threads)
        return _queues[name]


class Task:
    """Images of one shape and dtype, computed as one tensor.

    Attributes:
        owners: the number of lazy tensors that have a part in it. size: the bytes of its result.
        future: its result [images, channels, height, width].
        hurried: somebody waits for it: if it is small, it may be computed on the host for the device.
    """

    hurried = False

    def __init__(self, recipes: Sequence[Recipe], interleaved: bool, owners: int = 1, size: int = 0) -> None:
        self.recipes = recipes
        self.interleaved = interleaved
        self.owners = owners
        self.size = size
        self.future: Future[torch.Tensor] = Future()
        self._event: Any = None

    def run(self, device: torch.device | None) -> None:
        """Compute it on a device, or on the host if None, unless it was cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result, self._event = self._made(device)
        except Exception as error:
            self.future.set_exception(emptied(error))
        except BaseException:  # an interrupt of this thread; other waiting threads compute for themselves
            self.future.set_exception(CancelledError())
            raise
        else:
            self.future.set_result(result)

    def _made(self, device: torch.device | None) -> tuple[torch.Tensor, Any]:
        """The result, and the event after which it is complete; see ``streams.aside``."""
        if device is None:
            return compute.tensors(self.recipes, interleaved=self.interleaved), None
        if self.hurried and small_requests.on_host(self.recipes, device):
            values = compute.tensors(self.recipes, interleaved=self.interleaved)
            return streams.aside(device, lambda: streams.transferred(values, device))
        return _launch(self.recipes, self.interleaved, device)

    def result(self) -> torch.Tensor:
        """Wait for the host's work and return the result; the caller's current stream waits for the device's."""
        return streams.arrive(self.future.result(), self._event)

    def error(self) -> BaseException | None:
        """The exception that it failed with, or None; waits until it has run."""
        return None if self.future.cancelled() else self.future.exception()

    def call_when_done(self, function: Callable[[Task], None]) -> None:
        """Call ``function`` with this task when it has run, or was cancelled."""
        # emptied at the call, as the future, which is this task's, keeps its callbacks
        calls = [partial(function, self)]
        self.future.add_done_callback(lambda _: calls.pop()())


class Transfer(Task):
    """A plain tensor that is copied to a device."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__((), False, 1, tensor.nbytes)
        self._tensor: torch.Tensor | None = tensor

    def _made(self, device: torch.device | None) -> tuple[torch.Tensor, Any]:
        tensor, self._tensor = self._tensor, None
        assert tensor is not None
        assert device is not None
        return streams.aside(device, lambda: streams.transferred(tensor, device))


def compute_now(recipes: Sequence[Recipe], interleaved: bool, device: torch.device) -> torch.Tensor:
    """Compute images on a device, in this thread; see ``Task.result``."""
    return streams.arrive(*_launch(recipes, interleaved, device))


def _launch(recipes: Sequence[Recipe], interleaved: bool, device: torch.device) -> tuple[torch.Tensor, Any]:
    return streams.aside(device, lambda: compute.tensors_on(device, recipes, interleaved=interleaved))


def run(tasks: tuple[Task, ...], device: torch.device | None, now: bool) -> None:
    """Run tasks one after another, for a ``WorkQueue``; cancel them if not ``now``, as the interpreter is ending."""
    for task in tasks:
        if now:
            task.run(device)
        else:  # a thread that still waits for the result computes it
            task.future.cancel()
        on_host.discard(task)


def launchers_paused(device: torch.device) -> AbstractContextManager[None]:
    """A context inside which accel's threads launch nothing on a device."""
    queue = _queues.get(str(device))
    return nullcontext() if queue is None else queue.paused()


def start_on_host(tasks: Sequence[Task]) -> None:
    """Run tasks on threads of the host, side by side."""
    queue = queue_named("host", cores())
    for task in tasks:
        on_host.add(task)
        queue.put(partial(run, (task,), None))


def _end() -> None:
    for each in _queues.values():
        each.end()


atexit.register(_end)

on_host: set[Task] = set()
"""Tasks that were queued on the host and have not run."""

fork.register(in_child=on_host.clear)
fork.register(in_child=_queues.clear)
