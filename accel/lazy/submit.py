"""``accel.submit``, and the future that it returns."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch

from accel.errors import DecodeError, emptied
from accel.lazy.batch import Whole, coalesce
from accel.lazy.image import LazyImage
from accel.lazy.on_device import queue_of, submitted_or_computed
from accel.lazy.state import LazyState, peek
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops.memory_layout import INTERLEAVED
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe
from accel.runtime import streams, task
from accel.runtime.prefetch import PrefetchQueue, TaskSlice
from accel.runtime.task import Task
from accel.system import fork, log, memory


def submit(
    images: Any, device: Any = None, *, errors: Literal["raise", "return"] = "raise", stream: Any = None
) -> Future:
    """Start computing lazy images, and return at once.

    Under a host backend the work begins on threads of accel's own; a lazy tensor itself becomes the result, and if it
    is used earlier it waits for that. Under an accelerator backend the work is launched on a stream of accel's own.

    Args:
        images: a lazy tensor (one image or a batch), a lazy image, or a list or tuple of such. Those with results of
            the same shape and dtype are one program. Values that are not lazy are passed on as they are.
        device: where the results shall be, as ``torch.device`` takes it; None: on the host under a host backend, else
            on the device that is known from the option ``device`` or from an earlier ``.to(device)``.
        errors: "raise": if an image cannot be computed, ``result()`` raises the error of the first such. "return": the
            error stands in the image's place (of a batch in one tensor, in the batch's place), without the memory that
            it came from; all others are computed, also those that were computed together with it.
        stream: the stream of the device, such as a ``torch.cuda.Stream``, that will use the results; None: the one that
            is current where ``result()`` is called.

    Returns:
        A future of a plain tensor with the lazy one's shape and dtype or, for a lazy image, of a uint8 tensor
        [channels, height, width]; for a list or tuple, of a list of such. See ``Future``.

    Raises:
        TypeError: ``images`` is an iterator, or one of its items is a list or tuple of lazy tensors.
        ValueError: an accelerator backend does not know its device yet; ``errors`` is neither; or results on the host
            or on another device were to be used on ``stream``.
    """
    if errors not in ("raise", "return"):
        raise ValueError(f"errors must be 'raise' or 'return', got {errors!r}")
    if stream is not None and (
        isinstance(stream, torch.Tensor) or not isinstance(getattr(stream, "device", None), torch.device)
    ):
        raise TypeError(f"stream must be a stream of a device, got {stream!r}")
    listed = isinstance(images, (list, tuple))
    if isinstance(images, Iterator):
        raise TypeError(f"images must be one lazy image or tensor, or a list or tuple of such, got {images!r}")
    items = [(image, lazy_of(image)) for image in (images if listed else [images])]
    with log.flushing:
        return Future(items, None if device is None else torch.device(device), listed, errors == "return", stream)


def lazy_of(image: Any) -> LazyState | None:
    """The state of a lazy image or tensor; None for other values."""
    if isinstance(image, (list, tuple)) and any(isinstance(each, LazyTensorBase) for each in image):
        raise TypeError(f"each image must be one lazy image or tensor, got a {type(image).__name__} of {len(image)}")
    if isinstance(image, LazyTensorBase):
        lazy = peek(image)  # another thread may use it at any moment
        return lazy if is_lazy(image) else None
    recipe = image.recipe if isinstance(image, LazyImage) else None
    if recipe is None:
        return None
    width, height = image.size
    recipe = Recipe(recipe.source, (*recipe.steps, ("pil_to_tensor", ())))
    return LazyState((recipe,), (), (len(image.getbands()), height, width), torch.uint8, INTERLEAVED)


class Future(concurrent.futures.Future[Any]):
    """Future of submitted images: a ``concurrent.futures.Future``, made by ``submit``.

    ``done()``, ``exception()`` and callbacks are about the host's part of the work. ``result()`` has the caller's
    current stream, or that of ``submit``, wait for the device's part; the host does not wait for it.

    In a process that was forked after ``submit``, ``result()`` and ``exception()`` compute in that process; the other
    methods report what was done when it was forked.
    """

    def __init__(
        self,
        items: list[tuple[Any, LazyState | None]],
        device: torch.device | None,
        listed: bool,
        returns_errors: bool,
        stream: Any,
    ) -> None:
        super().__init__()
        self._items = items
        self._device = device
        self._listed = listed
        self._returns_errors = returns_errors
        self._stream = stream
        self._apart: set[int] = set()  # what failed together with others, and was submitted again
        self._results: list[Any] | None = None
        self._lock = fork.Lock()
        self._process = os.getpid()
        self._parts: dict[int, TaskSlice] = {}
        self._unfinished: set[Task] = set()
        lazies = {number: lazy for number, (_, lazy) in enumerate(items) if lazy is not None}
        alike: dict[Selection, list[int]] = {}
        for number, lazy in lazies.items():
            alike.setdefault(lazy.selection, []).append(number)
        queues = [self._queue_of(lazies[first]) for first, *_ in alike.values()]
        for numbers, queue in zip(alike.values(), queues, strict=True):
            self._launch(numbers, queue)
        for each in tuple(self._unfinished):
            each.call_when_done(self._task_done)
        if not self._parts:
            self._finish()

    def _queue_of(self, lazy: LazyState) -> PrefetchQueue | None:
        """The queue of the device that computes; None for the host."""
        queue = queue_of(lazy.selection, lazy.loader, self._device)
        if queue is not None and queue.device is None:
            raise ValueError(
                f"backend {lazy.selection.name!r} does not know its device yet: pass device=, here or to it"
            )
        if self._stream is not None and (queue is None or queue.device != self._stream.device):
            where = "on the host" if queue is None else f"on {queue.device}"
            raise ValueError(f"results are {where}, and cannot be used on a stream of {self._stream.device}")
        return queue

    def _launch(self, numbers: Sequence[int], queue: PrefetchQueue | None) -> Sequence[Task]:
        """Start the computation of some images, with one task for all with results of the same shape and dtype."""
        states = [lazy for number in numbers if (lazy := self._items[number][1]) is not None]
        submission, parts = coalesce(states)
        for each in submission.tasks:
            each.hurried = True
        self._unfinished.update(submission.tasks)
        try:
            if queue is None:
                task.start_on_host(submission.tasks)
            else:
                queue.add(submission)
                queue.start_now(submission)
        except BaseException:
            self._unfinished.difference_update(submission.tasks)
            raise
        for number, lazy, part in zip(numbers, states, parts, strict=True):
            self._parts[number] = part
            if not isinstance(lazy.progress, Whole):  # a view stays one
                lazy.submitted(part.twin())
        return submission.tasks

    def _task_done(self, done: Task) -> None:
        for group, queue in self._apart_from(done) if self._returns_errors else ():
            try:
                again = self._launch(group, queue)
            except Exception:  # as memory ran out: then whoever asks for the results computes these images
                continue
            for each in again:
                each.call_when_done(self._task_done)
        with self._lock:
            self._unfinished.discard(done)
            finished = not self._unfinished
        if finished:
            self._finish()

    def _apart_from(self, done: Task) -> list[tuple[list[int], PrefetchQueue | None]]:
        """What failed together, to start again: without the image that the error names, or else one by one."""
        error = done.error()
        if error is None or done.owners < 2:
            return []
        parts = {number: part for number, part in self._parts.items() if part.task is done}
        bad = next((number for number, part in parts.items() if self._position(error, number, part) is not None), None)
        if bad is None or not self._apart.isdisjoint(parts):
            groups = [[number] for number in parts]
        else:
            groups = [[bad], [number for number in parts if number != bad]]
        self._apart.update(parts)
        queue = next(iter(parts.values())).submission.queue
        return [(group, queue) for group in groups]

    def _position(self, error: BaseException | None, number: int, part: TaskSlice) -> int | None:
        """The place, among an item's images, of the one that a task's error is about; None if that is another's."""
        lazy = self._items[number][1]
        if lazy is None or not isinstance(error, DecodeError) or error.position is None:
            return None
        position = error.position - part.first
        return position if 0 <= position < len(lazy.recipes) else None

    def _finish(self) -> None:
        futures = [part.task.future for part in self._parts.values()]
        if futures and all(future.cancelled() for future in futures):
            super().cancel()
        if self.set_running_or_notify_cancel():
            error = None if self._returns_errors else next(self._errors(), None)
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
            elif (position := self._position(error, number, part)) is not None:
                yield _in_list(error, lazy.recipes[position], number, len(self._items))

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
        """Return the computed images, or their errors; see ``submit``. Each call returns the same ones.

        Args:
            timeout: seconds to wait for the host's part; None: as long as it takes.

        Raises:
            DecodeError: an image cannot be decoded, and ``errors`` is "raise"; the message names the file, its place
                and the reason.
            concurrent.futures.TimeoutError: it takes longer.
            concurrent.futures.CancelledError: it was cancelled.
        """
        if self._process == os.getpid():  # in a forked child it will never be finished
            super().result(timeout)
        with log.flushing, self._lock:
            if self._results is None:
                with streams.current(self._stream):
                    self._results = [self._answer(number) for number in range(len(self._items))]
                self._items, self._parts = [], {}
            return list(self._results) if self._listed else self._results[0]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what ``result`` would raise, or None; waits as that does, for ``timeout`` seconds at most."""
        if self._process == os.getpid():
            return super().exception(timeout)
        try:
            self.result()
        except Exception as error:
            return error
        return None

    def _answer(self, number: int) -> Any:
        try:
            return self._take(number)
        except Exception as error:
            if not self._returns_errors:
                raise
            return emptied(error)

    def _take(self, number: int) -> Any:
        image, lazy = self._items[number]
        if lazy is None:
            return LazyTensorBase.materialize(image) if isinstance(image, LazyTensorBase) else image
        part, is_tensor = self._parts[number], isinstance(image, torch.Tensor)  # a plain one if it was used meanwhile
        queue = part.submission.queue
        if queue is not None and queue.device is not None and not part.submission.foreign:
            with lazy.lock:  # from this part, not from its twin, which would copy
                value = submitted_or_computed(lazy, queue.device, part)
            value = value.as_subclass(getattr(image, "becomes", None) or type(image)) if is_tensor else value
        else:
            value = LazyTensorBase.materialize(image) if is_tensor else lazy.compute(memory.results.empty)
        return value if self._device is None else value.to(self._device)


def _in_list(error: DecodeError, recipe: Recipe, number: int, count: int) -> DecodeError:
    """The same error, with the place of the image or of its batch in the submitted list."""
    reason = error.__cause__ if isinstance(error.__cause__, DecodeError) else error
    return type(error)(f"{recipe.source.name}: {reason} (number {number} of a list of {count})")
