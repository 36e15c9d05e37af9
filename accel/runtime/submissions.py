"""Late images on their way: programs that run ahead of whoever will use their results, on the host or a device.

A **task** is one program: images that come out alike, as one tensor. A **submission** is what starts together, such
as a batch. A **part** of one is what a late tensor has of it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from accel.errors import DecodeError
from accel.recipe import Recipe
from accel.runtime import materialize, streams, work_queue
from accel.system import fork
from accel.system.cores import cores

if TYPE_CHECKING:
    from accel.runtime.prefetch import Lane


_numbers = itertools.count()
_on_host: set[Task] = set()


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
                result = materialize.tensors(self.recipes, interleaved=self.interleaved)
            else:
                result, self._event = streams.aside(device, lambda: self._launch(device))
        except Exception as error:
            self.future.set_exception(error)
        except BaseException:  # an interrupt, which is this thread's; others who wait compute for themselves
            self.future.set_exception(CancelledError())
            raise
        else:
            self.future.set_result(result)

    def _launch(self, device: torch.device) -> torch.Tensor:
        return materialize.tensors_on(device, self.recipes, interleaved=self.interleaved)

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
        first: its first image, of the task's.
        shared: somebody else takes them too.
    """

    __slots__ = ("_taken", "first", "shared", "submission", "task")

    def __init__(self, submission: Submission, task: Task, first: int, *, shared: bool = False) -> None:
        self.submission = submission
        self.task = task
        self.first = first
        self._taken = False
        self.shared = shared

    def twin(self) -> Part:
        """The same part for somebody else, who gets a copy of what is on a device."""
        return Part(self.submission, self.task, self.first, shared=True)

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


def on_host(tasks: Sequence[Task]) -> None:
    """Run tasks on the host, side by side."""
    pool = work_queue.pool("host", cores())
    for task in tasks:
        _on_host.add(task)
        pool.put(partial(run, (task,), None))


def run(tasks: tuple[Task, ...], device: torch.device | None, now: bool) -> None:
    for task in tasks:
        if now:
            task.run(device)
        else:  # the interpreter is ending: whoever still waits for the result computes it
            task.future.cancel()
        _on_host.discard(task)


def now(recipes: tuple[Recipe, ...], interleaved: bool, device: torch.device) -> torch.Tensor:
    """Images computed on a device, by this thread; see ``Task.result``."""
    launched = streams.aside(device, lambda: materialize.tensors_on(device, recipes, interleaved=interleaved))
    return streams.arrive(*launched)


def on_host_now() -> int:
    """How many tasks have been given to the host and have not run."""
    return len(_on_host)


fork.register(in_child=_on_host.clear)
