"""Capturing a step, and trying the capture against the step itself before it is used."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from accel.runtime import streams, task
from accel.sinking import graph
from accel.sinking.state import Kept, StepState, differs, keep, put_back, same_bits
from accel.sinking.structure import leaves, mapped

_TRIED = 2  # steps that are replayed in the trial


class Captured:
    """A step captured over one batch, which is filled before each replay."""

    def __init__(self, step: Callable[[Any], Any], batch: Any, state: StepState, device: torch.device) -> None:
        """Capture a step, and leave the state as it was.

        The step runs twice from the same state. If the results differ, as with kernels that add in any order, this is
        done again with torch's deterministic algorithms. Then a replay must give the same bits.

        Raises:
            CaptureRefused: the step gives other values each time, or a replay does. And whatever the capture raised.
        """
        self._batch = mapped(batch, torch.Tensor, torch.clone)
        self._leaves = leaves(self._batch)
        self._step, self._state, self._device = step, state, device
        before = keep(state, device)
        try:
            for mode in (nullcontext, _deterministic):
                with mode():
                    if (repeats := self._repeats(before)) is not None:
                        self._capture(before)
                        if _differ(repeats, self._run(self._replayed)):
                            raise CaptureRefused("a replay gives other values than the step")
                        put_back(before)
                        break
            else:
                raise CaptureRefused(
                    "it gives other values each time, also with deterministic algorithms: what it keeps besides state= "
                    "would be frozen"
                )
            if mode is _deterministic:
                self._capture(before)
        finally:
            put_back(before)

    def _capture(self, before: Kept) -> None:
        with task.launchers_paused(self._device):
            self._graph = graph.Graph(lambda: self._step(self._batch), self._device, self._state.generators)
        self._gradients = [(each, each.grad) for each in self._state.parameters()]
        put_back(before)

    def _repeats(self, before: Kept) -> Outcome | None:
        """What the step gives; None if it gives something else the second time."""
        first = self._run(lambda: self._step(self._batch))
        put_back(before)
        second = self._run(lambda: self._step(self._batch))
        put_back(before)
        return None if _differ(first, second) else first

    def _run(self, step: Callable[[], Any]) -> Outcome:
        def results() -> list[torch.Tensor]:
            return [each.detach().clone() for _ in range(_TRIED) for each in leaves(step())]

        return streams.beside(self._device, results), keep(self._state, self._device)

    def _replayed(self) -> Any:
        for parameter, gradient in self._gradients:  # a step outside the graph has replaced them
            parameter.grad = gradient
        self._graph.replay()
        return self._graph.result

    def replay(self, batch: Any) -> Any:
        """Run the step on a batch like the captured one; its result, which the next replay overwrites."""
        for own, given in zip(self._leaves, leaves(batch), strict=True):
            own.copy_(given)
        return self._replayed()


class CaptureRefused(Exception):
    """A step is not captured; the message says why."""


Outcome = tuple[list[torch.Tensor], Kept]
"""The results of some steps, and the state after them."""


def _differ(one: Outcome, two: Outcome) -> bool:
    return not all(map(same_bits, one[0], two[0])) or differs(one[1], two[1])


@contextmanager
def _deterministic() -> Iterator[None]:
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    flags = cudnn.deterministic, cudnn.benchmark
    torch.use_deterministic_algorithms(True, warn_only=True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operators that have no deterministic algorithm
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.deterministic, cudnn.benchmark = flags
