"""``accel.sink``: a training step run many times over a queue on the device, as one launch each where it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from accel.lazy import explanation
from accel.runtime import streams
from accel.sinking.capture import Captured, CaptureRefused
from accel.sinking.device_queue import device_queue
from accel.sinking.observed import Observer
from accel.sinking.state import Facts, StepState, changed
from accel.sinking.structure import form, leaves, mapped
from accel.system import counters

_EAGER = 3  # steps before a capture: real ones, of which the last is watched
_CHANGES, _WORTH = 3, 30  # changes of the step with fewer replays between them, after which it is captured no more


def sink(
    step: Callable[..., Any],
    steps: int = 1,
    state: Sequence[Any] | None = None,
    *,
    device: Any = None,
    depth: int = 3,
) -> Sink:
    """Run a training step over a loader in groups, without the host in between.

    The step is captured as a CUDA graph after three steps, if it gives the same bits that way, and from then on is one
    launch; the batches come from ``device_queue``. What cannot be captured runs as it is, with a logged reason;
    ``accel.explain`` tells it as well. Where a replay runs, the step's Python does not: lists it appends to, counters,
    printing.

    Args:
        step: called with a batch (a tuple or list as its arguments), all on the device; returns a tensor, or a tuple or
            dict of tensors.
        steps: how many steps are a group; -1: an epoch. The last group of an epoch may be shorter; where results are
            no scalars, a batch of another shape begins a new one.
        state: all that the step changes: modules, optimizers, tensors, generators. None: what the step's closure and
            the globals that it names refer to.
        device: where it runs, as ``torch.device`` takes it; None: where the state lies.
        depth: see ``device_queue``.

    Returns:
        A ``Sink``: ``for results in sink(loader)`` yields the results of each group, stacked: a tensor's are of shape
        [steps, ...]. When a group is yielded, weights, optimizer and random states are those after its last step; no
        step of the next has been issued. If the loader or a step raises, the results before that are yielded, and then
        it is raised.

    Raises:
        ValueError: ``steps`` is neither positive nor -1, or ``depth`` is not positive.
    """
    return Sink(step, steps, state, device=device, depth=depth)


class Sink:
    """See ``sink``.

    Attributes:
        reason: why the steps are not captured; None: they are, or it is not known yet.
        replayed, eager: how many steps were replayed, and how many ran as they are.
    """

    def __init__(
        self, step: Callable[..., Any], steps: int, state: Sequence[Any] | None, *, device: Any = None, depth: int = 3
    ) -> None:
        if type(steps) is not int or (steps < 1 and steps != -1):
            raise ValueError(f"steps must be a positive int or -1, got {steps!r}")
        self._step, self._steps, self._given, self._device, self._depth = step, steps, state, device, depth
        self.reason: str | None = None
        self.replayed = self.eager = 0
        self._state = StepState(step, state)
        self._facts: Facts | None = None
        self._captured: Captured | None = None
        self._form: Any = None
        self._seen = self._changes = self._worth = 0

    def __call__(self, loader: Any) -> Iterator[Any]:
        """Iterate over an epoch of a loader in groups."""
        return _Groups(self, iter(device_queue(loader, self._where(), self._depth)), self._steps)

    def __repr__(self) -> str:
        name = getattr(self._step, "__qualname__", type(self._step).__name__)
        how = f"eager: {self.reason}" if self.reason else "captured" if self._captured else "not captured yet"
        return f"sink of {name}: {how}; {self.replayed:,} steps replayed, {self.eager:,} run as they are"

    def _where(self) -> torch.device:
        if self._device is not None:
            return streams.indexed(torch.device(self._device))
        for each in self._state.tensors().values():
            return each.device
        return streams.indexed(torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu"))

    def begin_group(self) -> None:
        """See whether anything that a captured step has frozen was changed since the last group."""
        if self.reason is not None:
            return
        if not streams.runs_ahead(self._where()):
            self.reason = "the step runs on the host"
            return
        self._state = StepState(self._step, self._given)
        self._refuse(self._unfit())
        facts = self._seen_facts()
        name = None if self._facts is None else changed(self._facts, facts)
        self._facts = facts
        if name is None:
            return
        self._changes = self._changes + 1 if self.replayed < self._worth else 1
        self._captured, self._seen, self._worth = None, min(self._seen, _EAGER - 1), self.replayed + _WORTH
        if self._changes > _CHANGES:
            self._refuse(f"{name} changes from group to group: use a tensor (as a learning rate with fused=True)")

    def _seen_facts(self) -> Facts:
        try:
            return self._state.facts()
        except Exception as error:  # of tensors that are none of torch's own
            self._refuse(f"its state cannot be watched: {error}".splitlines()[0])
            return {}

    def _unfit(self) -> str | None:
        if not self._state.modules and not self._state.optimizers:
            return "no module or optimizer was found in the step's variables: name them, state=[model, optimizer]"
        distributed = torch.nn.parallel.DistributedDataParallel
        if any(isinstance(each, distributed) for module in self._state.modules.values() for each in module.modules()):
            return "its model is a DistributedDataParallel"
        if torch.is_autocast_enabled(self._where().type) and torch.is_autocast_cache_enabled():
            return "it is called inside an autocast with a cache: open the autocast in the step"
        return None

    def _refuse(self, reason: str | None) -> None:
        if reason is not None and self.reason is None:
            self.reason, self._captured = reason, None
            counters.fallback(f"accel.sink runs a step as it is: {reason}")

    def run(self, batch: Any) -> Any:
        """Run a step on a batch; return its result, in memory of its own."""
        if self.reason is None and self._seen >= _EAGER and form(batch) == self._form and self._captured is None:
            self._capture(batch)
        if self._captured is not None and form(batch) == self._form:
            self.replayed += 1
            return mapped(self._captured.replay(batch), torch.Tensor, lambda each: each.detach().clone())
        self.eager += 1
        if self.reason is not None or self._seen >= _EAGER:
            return self._checked(self._called(batch))
        return streams.beside(self._where(), lambda: self._checked(self._warmed(batch)))

    def _called(self, batch: Any) -> Any:
        return self._step(*batch) if isinstance(batch, (tuple, list)) else self._step(batch)

    def _warmed(self, batch: Any) -> Any:
        self._seen = self._seen + 1 if self._form is None or form(batch) == self._form else 1
        self._form = form(batch)
        if self._seen < _EAGER:
            return self._called(batch)
        try:
            observer = Observer(self._state, leaves(batch), self._where())
        except (NotImplementedError, RuntimeError) as error:
            self._refuse(f"its state cannot be watched: {error}".splitlines()[0])
            return self._called(batch)
        with observer:
            result = self._called(batch)
        self._refuse(observer.reason)
        self._facts = self._seen_facts()
        return result

    def _capture(self, batch: Any) -> None:
        try:
            self._captured = Captured(self._called, batch, self._state, self._where())
        except CaptureRefused as error:
            self._refuse(str(error))
        except Exception as error:
            self._refuse(f"{type(error).__name__}: {error}".splitlines()[0])

    def _checked(self, result: Any) -> Any:
        parts = list(result.values()) if isinstance(result, dict) else result if isinstance(result, tuple) else [result]
        if not parts or not all(isinstance(each, torch.Tensor) for each in parts):
            raise TypeError(f"a step must return a tensor, or a tuple or dict of tensors, got {type(result).__name__}")
        return mapped(result, torch.Tensor, lambda each: each.detach().clone())


class _Groups:
    """The groups of one epoch."""

    def __init__(self, sink: Sink, batches: Iterator[Any], steps: int) -> None:
        self._sink, self._batches, self._steps = sink, batches, steps
        self._error: Exception | None = None
        self._held: list[Any] = []  # a batch that was drawn for the next group

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        results: list[Any] = []
        error, self._error = self._error, None
        if error is None:
            self._sink.begin_group()
            try:
                first = None
                while len(results) != self._steps:
                    batch = self._held.pop() if self._held else next(self._batches, _END)
                    if batch is _END:
                        break
                    if results and form(batch) != first and any(each.ndim for each in leaves(results[0])):
                        self._held.append(batch)  # results of another shape cannot be stacked with these
                        break
                    first = form(batch) if not results else first
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
    """Results of steps, one structure of tensors each, as one of stacked tensors."""
    parts = iter([torch.stack(each) for each in zip(*map(leaves, results), strict=True)])
    return mapped(results[0], torch.Tensor, lambda _: next(parts))


explanation.also(lambda value: repr(value) if isinstance(value, Sink) else None)
