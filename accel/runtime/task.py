"""Tasks: images of one shape and dtype, computed ahead of use, on the host or on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

import torch

from accel.recipes.recipe import Recipe
from accel.runtime import compute, streams, work_queue
from accel.system import fork
from accel.system.cores import cores


class Task:
    """Images of one shape and dtype, computed as one tensor.

    Attributes:
        owners: the number of lazy tensors that have a part in it. size: the bytes of its result.
        future: its result [images, channels, height, width].
    """

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
            if device is None:
                result = compute.tensors(self.recipes, interleaved=self.interleaved)
            else:
                result, self._event = _launch(self.recipes, self.interleaved, device)
        except Exception as error:
            self.future.set_exception(error)
        except BaseException:  # an interrupt of this thread; other waiting threads compute for themselves
            self.future.set_exception(CancelledError())
            raise
        else:
            self.future.set_result(result)

    def result(self) -> torch.Tensor:
        """Wait for the host's work and return the result; the caller's current stream waits for the device's."""
        return streams.arrive(self.future.result(), self._event)

    def error(self) -> BaseException | None:
        """The exception that it failed with, or None; waits until it has run."""
        return None if self.future.cancelled() else self.future.exception()

    def call_when_done(self, function: Callable[[Task], None]) -> None:
        """Call ``function`` with this task when it has run, or was cancelled."""
        functions = [function]  # emptied at the call, as the future keeps its callbacks
        self.future.add_done_callback(lambda _: functions.pop()(self))


def compute_now(recipes: Sequence[Recipe], interleaved: bool, device: torch.device) -> torch.Tensor:
    """Compute images on a device, in this thread; see ``Task.result``."""
    return streams.arrive(*_launch(recipes, interleaved, device))


def _launch(recipes: Sequence[Recipe], interleaved: bool, device: torch.device) -> tuple[torch.Tensor, Any]:
    return streams.aside(device, lambda: compute.tensors_on(device, recipes, interleaved=interleaved))


def run(tasks: tuple[Task, ...], device: torch.device | None, now: bool) -> None:
    """Run tasks one after another, for a ``work_queue``; cancel them if not ``now``, as the interpreter is ending."""
    for task in tasks:
        if now:
            task.run(device)
        else:  # a thread that still waits for the result computes it
            task.future.cancel()
        on_host.discard(task)


def start_on_host(tasks: Sequence[Task]) -> None:
    """Run tasks on threads of the host, side by side."""
    queue = work_queue.named("host", cores())
    for task in tasks:
        on_host.add(task)
        queue.put(partial(run, (task,), None))


on_host: set[Task] = set()
"""Tasks that were queued on the host and have not run."""

fork.register(in_child=on_host.clear)
