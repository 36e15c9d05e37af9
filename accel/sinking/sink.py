"""``accel.sink``: a training step run many times over a queue on the device, as one launch each where it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from accel.lazy import explanation
from accel.runtime import streams
from accel.sinking.capture import Captured, CaptureRefused
from accel.sinking.device_queue import device_queue
from accel.sinking.structure import form, leaves, mapped
from accel.sinking.trace import Trace, difference, is_compiled
from accel.system import counters

_TRIES = 10  # steps that are traced in a row, after which none is captured
_CHANGES, _WORTH = 3, 30  # captures in a row with fewer replays, after which none is made any more


def sink(step: Callable[..., Any], steps: int = 100, *, device: Any = None, depth: int = 3) -> Sink:
    """Run a training step over a loader in groups, without the host in between.

    The first step of each group runs as it is, and what it launches is noted: operators, numbers, and where tensors
    lie. Where two steps do the same, the next is captured as a CUDA graph, and the rest of the group and of later
    groups are replays of it, one launch each, for as long as the first step of a group does the same. The batches come
    from ``device_queue``. What cannot be captured runs as it is, with a logged reason; ``accel.explain`` tells it too.

    Inside a group the step's Python does not run: no list grows, nothing is printed.

    Args:
        step: called with a batch (a tuple or list as its arguments), all on the device; returns a tensor, or a tuple or
            dict of tensors.
        steps: how many steps are a group; -1: an epoch. The last group of an epoch may be shorter.
        device: where it runs, as ``torch.device`` takes it; None: the current accelerator, else the host.
        depth: see ``device_queue``.

    Returns:
        A ``Sink``: ``for results in sink(loader)`` yields the results of each group, stacked: a tensor's are of shape
        [steps, ...]; if they differ in shape, a list. When a group is yielded, weights, optimizer and random states are
        those after its last step; no step of the next has been issued. If the loader or a step raises, the results
        before that are yielded, and then it is raised.

    Raises:
        ValueError: ``steps`` is neither positive nor -1, or ``depth`` is not positive.
    """
    return Sink(step, steps, device, depth)


class Sink:
    """See ``sink``.

    Attributes:
        reason: why the steps are not captured; None: they are, or it is not known yet.
        replayed, eager: how many steps were replayed, and how many ran as they are.
    """

    def __init__(self, step: Callable[..., Any], steps: int, device: Any, depth: int) -> None:
        if type(steps) is not int or (steps < 1 and steps != -1):
            raise ValueError(f"steps must be a positive int or -1, got {steps!r}")
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        self._device = streams.indexed(torch.device(accelerator or "cpu" if device is None else device))
        self._step, self._steps, self._depth = step, steps, depth
        self.reason: str | None = None
        self.replayed = self.eager = 0
        self._captured: Captured | None = None
        self._traced: tuple[Any, Trace] | None = None  # the last step that was traced, with its batch's form
        self._what = ""  # that was last different
        self._ready = self._verified = False
        self._tries = self._changes = self._worth = self._misfits = 0

    def __call__(self, loader: Any) -> Iterator[Any]:
        """Iterate over an epoch of a loader in groups."""
        return _Groups(self, iter(device_queue(loader, self._device, self._depth)), self._steps)

    def __repr__(self) -> str:
        name = getattr(self._step, "__qualname__", type(self._step).__name__)
        how = f"eager: {self.reason}" if self.reason else "captured" if self._captured else "not captured yet"
        return f"sink of {name}: {how}; {self.replayed:,} steps replayed, {self.eager:,} run as they are"

    def begin_group(self) -> None:
        """See whether steps may be captured at all, as things are."""
        self._verified = False
        if self.reason is not None:
            return
        if not streams.runs_ahead(self._device):
            self.reason = "the step runs on the host"
        elif self._steps == 1:
            self._refuse("the first step of each group runs as it is, and groups are of one step: steps=100")
        elif torch.distributed.is_available() and torch.distributed.is_initialized():
            self._refuse("torch.distributed is in use")
        elif is_compiled(self._step):
            self._refuse("it is compiled, or its model is: torch.compile(mode='reduce-overhead') captures by itself")
        elif torch.is_autocast_enabled(self._device.type) and torch.is_autocast_cache_enabled():
            self._refuse("it is called inside an autocast with a cache: open the autocast in the step")

    def run(self, batch: Any) -> Any:
        """Run a step on a batch; return its result, in memory of its own."""
        like, fits = None, False
        if self.reason is None:
            like = form(batch)
            fits = self._traced is not None and like == self._traced[0]
            self._misfits = 0 if fits or self._traced is None else self._misfits + 1
            if fits and self._verified and self._ready:
                self._capture(batch)
            if fits and self._verified and self._captured is not None:
                self.replayed, self._tries = self.replayed + 1, 0
                return _kept(self._captured.replay(batch))
        self.eager += 1
        if self.reason is None and self._misfits != 1:  # a single one, as at the end of an epoch, changes nothing
            return streams.beside(self._device, lambda: _checked(self._trace(batch, like, fits)))
        self._verified = False  # what this step does is not known
        return _checked(self._call(batch))

    def _call(self, batch: Any) -> Any:
        return self._step(*batch) if isinstance(batch, (tuple, list)) else self._step(batch)

    def _trace(self, batch: Any, like: Any, fits: bool) -> Any:
        trace = Trace(self._step, leaves(batch), self._device)
        with trace:
            result = self._call(batch)
        if trace.reason is not None:
            self._refuse(trace.reason)
            return result
        if fits and self._traced is not None:
            what = difference(self._captured.trace if self._captured else self._traced[1], trace)
        else:
            what = "its batches are of another form"
        if what is not None and self._captured is not None:
            self._captured = None
            self._changes = self._changes + 1 if self.replayed < self._worth else 1
        self._what = what or self._what
        self._traced, self._verified = (like, trace), True
        self._ready = what is None and self._captured is None
        self._tries += 1
        if self._tries >= _TRIES or self._changes > _CHANGES:
            self._refuse(
                f"it does something else from time to time: {self._what} (numbers that change belong into tensors)"
            )
        return result

    def _capture(self, batch: Any) -> None:
        self._ready, self._worth = False, self.replayed + _WORTH
        assert self._traced is not None
        try:
            self._captured = Captured(self._call, batch, self._traced[1], self._device)
        except CaptureRefused as error:
            self._refuse(str(error))
        except Exception as error:
            self._refuse(f"{type(error).__name__}: {error}")

    def _refuse(self, reason: str) -> None:
        if self.reason is None:
            self.reason, self._captured = reason.splitlines()[0], None
            counters.fallback(f"accel.sink runs a step as it is: {self.reason}")


def _checked(result: Any) -> Any:
    parts = list(result.values()) if isinstance(result, dict) else result if isinstance(result, tuple) else [result]
    if not parts or not all(isinstance(each, torch.Tensor) for each in parts):
        raise TypeError(f"a step must return a tensor, or a tuple or dict of tensors, got {type(result).__name__}")
    return _kept(result)


def _kept(result: Any) -> Any:
    """A step's result in memory of its own."""
    return mapped(result, torch.Tensor, lambda each: each.detach().clone())


class _Groups:
    """The groups of one epoch."""

    def __init__(self, sink: Sink, batches: Iterator[Any], steps: int) -> None:
        self._sink, self._batches, self._steps = sink, batches, steps
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        results: list[Any] = []
        error, self._error = self._error, None
        if error is None:
            self._sink.begin_group()
            try:
                while len(results) != self._steps and (batch := next(self._batches, _END)) is not _END:
                    results.append(self._sink.run(batch))
            except StopIteration as raised:
                error = RuntimeError("a step raised StopIteration")
                error.__cause__ = raised
            except Exception as raised:
                error = raised
        if not results:
            raise StopIteration if error is None else error
        self._error = error
        return _stacked(results)


_END = object()


def _stacked(results: list[Any]) -> Any:
    """Results of steps, one structure of tensors each, as one of stacked tensors; as they are if they differ."""
    if any(form(each) != form(results[0]) for each in results):
        return results
    parts = iter([torch.stack(each) for each in zip(*map(leaves, results), strict=True)])
    return mapped(results[0], torch.Tensor, lambda _: next(parts))


explanation.also(lambda value: repr(value) if isinstance(value, Sink) else None)
