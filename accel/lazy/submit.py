"""``accel.submit``, and the future that it returns."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Iterator
from typing import Any

import torch

from accel.errors import DecodeError
from accel.lazy.batch import coalesce
from accel.lazy.image import LazyImage
from accel.lazy.on_device import queue_of, submitted_or_computed
from accel.lazy.state import LazyState
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops.memory_layout import INTERLEAVED
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe
from accel.runtime import task
from accel.runtime.prefetch import TaskSlice
from accel.runtime.task import Task
from accel.system import fork, log, memory


def submit(images: Any, device: Any = None) -> Future:
    """Start computing lazy images, and return at once.

    Under a host backend the work begins on threads of accel's own; a lazy tensor itself becomes the result, and if it
    is used earlier it waits for that. Under an accelerator backend the work is launched on a stream of accel's own.

    Args:
        images: a lazy tensor (one image or a batch), a lazy image, or a list or tuple of such. Those with results of
            the same shape and dtype are one program. Values that are not lazy are passed on as they are.
        device: where the results shall be, as ``torch.device`` takes it; None: on the host under a host backend, else
            on the device that is known from the option ``device`` or from an earlier ``.to(device)``.

    Returns:
        A future of a plain tensor with the lazy one's shape and dtype or, for a lazy image, of a uint8 tensor
        [channels, height, width]; for a list or tuple, of a list of such. See ``Future``.

    Raises:
        ValueError: an accelerator backend does not know its device yet.
    """
    listed = isinstance(images, (list, tuple))
    items = [(image, _lazy(image)) for image in (images if listed else [images])]
    with log.flushing:
        return Future(items, None if device is None else torch.device(device), listed)


def _lazy(image: Any) -> LazyState | None:
    """The state of a lazy image or tensor; None for other values."""
    if is_lazy(image):
        return image.lazy  # type: ignore[no-any-return]
    recipe = image.recipe if isinstance(image, LazyImage) else None
    if recipe is None:
        return None
    width, height = image.size
    recipe = Recipe(recipe.source, (*recipe.steps, ("pil_to_tensor", ())))
    return LazyState((recipe,), (), (len(image.getbands()), height, width), torch.uint8, INTERLEAVED)


class Future(concurrent.futures.Future[Any]):
    """Future of submitted images: a ``concurrent.futures.Future``, made by ``submit``.

    ``done()``, ``exception()`` and callbacks are about the host's part of the work. ``result()`` has the caller's
    current stream wait for the device's part; the host does not wait for it.

    In a process that was forked after ``submit``, ``result()`` and ``exception()`` compute in that process; the other
    methods report what was done when it was forked.
    """

    def __init__(self, items: list[tuple[Any, LazyState | None]], device: torch.device | None, listed: bool) -> None:
        super().__init__()
        self._items = items
        self._device = device
        self._listed = listed
        self._results: list[Any] | None = None
        self._lock = fork.Lock()
        self._process = os.getpid()
        self._parts: dict[int, TaskSlice] = {}
        for selection in dict.fromkeys(lazy.selection for _, lazy in items if lazy is not None):
            self._launch(selection)
        self._unfinished = {part.task for part in self._parts.values()}
        for each in tuple(self._unfinished):
            each.call_when_done(self._task_done)
        if not self._parts:
            self._finish()

    def _launch(self, selection: Selection) -> None:
        states = {n: lazy for n, (_, lazy) in enumerate(self._items) if lazy and lazy.selection == selection}
        submission, parts = coalesce(tuple(states.values()))
        queue = queue_of(selection, next(iter(states.values())).loader, self._device)
        if queue is None:
            task.start_on_host(submission.tasks)
        elif queue.device is None:
            raise ValueError(f"backend {selection.name!r} does not know its device yet: pass device=, here or to it")
        else:
            queue.add(submission)
            queue.start_now(submission)
        for (number, lazy), part in zip(states.items(), parts, strict=True):
            self._parts[number] = part
            lazy.submitted(part.twin())

    def _task_done(self, done: Task) -> None:
        with self._lock:
            self._unfinished.discard(done)
            if self._unfinished:
                return
        self._finish()

    def _finish(self) -> None:
        futures = [part.task.future for part in self._parts.values()]
        if futures and all(future.cancelled() for future in futures):
            super().cancel()
        if self.set_running_or_notify_cancel():
            error = next(self._errors(), None)
            if error is None:
                self.set_result(None)
            else:
                self.set_exception(error)

    def _errors(self) -> Iterator[BaseException]:
        """Yield the exceptions that were raised, in the order of the images."""
        for number, part in sorted(self._parts.items()):
            error, lazy = part.task.error(), self._items[number][1]
            if error is None or lazy is None:
                continue
            if not self._listed or not isinstance(error, DecodeError) or error.position is None:
                yield error
            elif 0 <= error.position - part.first < len(lazy.recipes):
                yield _in_list(error, lazy.recipes[error.position - part.first], number, len(self._items))

    def cancel(self) -> bool:
        """Cancel the work that has not begun; return False if some has. The lazy images stay lazy."""
        for part in tuple(self._parts.values()):
            part.task.future.cancel()
        return self.cancelled()

    def running(self) -> bool:
        """Return whether some of the work has started, and not all is done."""
        futures = [part.task.future for part in tuple(self._parts.values())]
        return not self.done() and any(future.running() or future.done() for future in futures)

    def result(self, timeout: float | None = None) -> Any:
        """Return the computed images; see ``submit``. Each call returns the same ones.

        Args:
            timeout: seconds to wait for the host's part; None: as long as it takes.

        Raises:
            DecodeError: an image cannot be decoded; the message names the file, its place and the reason.
            concurrent.futures.TimeoutError: it takes longer.
            concurrent.futures.CancelledError: it was cancelled.
        """
        if self._process == os.getpid():  # in a forked child it will never be finished
            super().result(timeout)
        with log.flushing, self._lock:
            if self._results is None:
                self._results = [self._take(number) for number in range(len(self._items))]
                self._items, self._parts = [], {}
            return list(self._results) if self._listed else self._results[0]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what ``result`` would raise, or None; waits as that does."""
        if self._process == os.getpid():
            return super().exception(timeout)
        try:
            self.result()
        except Exception as error:
            return error
        return None

    def _take(self, number: int) -> Any:
        image, lazy = self._items[number]
        if lazy is None:
            return LazyTensorBase.materialize(image) if isinstance(image, LazyTensorBase) else image
        part, is_tensor = self._parts[number], isinstance(image, LazyTensorBase)
        queue = part.submission.queue
        if queue is not None and queue.device is not None and not part.submission.foreign:
            with lazy.lock:  # from this part, not from its twin, which would copy
                value = submitted_or_computed(lazy, queue.device, part)
            value = value.as_subclass(image.becomes) if is_tensor else value
        else:
            value = LazyTensorBase.materialize(image) if is_tensor else lazy.compute(memory.results.empty)
        return value if self._device is None else value.to(self._device)


def _in_list(error: DecodeError, recipe: Recipe, number: int, count: int) -> DecodeError:
    """The same error, with the place of the image or of its batch in the submitted list."""
    reason = error.__cause__ if isinstance(error.__cause__, DecodeError) else error
    return type(error)(f"{recipe.source.name}: {reason} (number {number} of a list of {count})")
