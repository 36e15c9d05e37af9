"""Capturing a step, and trying the capture against the step itself before it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from accel.runtime import streams, task
from accel.sinking import graph
from accel.sinking.state import Kept, StepState, differs, keep, put_back, same_bits
from accel.sinking.structure import leaves, mapped

_TRIED = 2  # steps that are replayed in the trial


class Captured:
    """A step captured over one batch, which is filled before each replay.

    Attributes:
        compared: whether its replays were compared with the step, as that gives the same bits every time.
    """

    def __init__(self, step: Callable[[Any], Any], batch: Any, state: StepState, device: torch.device) -> None:
        """Capture a step, and leave the state as it was.

        Raises:
            CaptureRefused: a replay does not give what the step gives. Whatever the capture raised.
        """
        self._batch = mapped(batch, torch.Tensor, torch.clone)
        self._leaves = leaves(self._batch)
        self._state = state
        before = keep(state, device)
        try:
            first = self._run(lambda: step(self._batch), device)
            put_back(before)
            self.compared = not _differ(first, self._run(lambda: step(self._batch), device))
            put_back(before)
            with task.launchers_paused(device):
                self._graph = graph.Graph(lambda: step(self._batch), device, state.generators)
            self._gradients = [(each, each.grad) for each in state.parameters()]
            put_back(before)
            if self.compared and _differ(first, self._run(self._replayed, device)):
                raise CaptureRefused("a replay gives other values than the step")
        finally:
            put_back(before)

    def _run(self, step: Callable[[], Any], device: torch.device) -> tuple[list[torch.Tensor], Kept]:
        def results() -> list[torch.Tensor]:
            return [each.detach().clone() for _ in range(_TRIED) for each in leaves(step())]

        return streams.beside(device, results), keep(self._state, device)

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


def _differ(one: tuple[list[torch.Tensor], Kept], two: tuple[list[torch.Tensor], Kept]) -> bool:
    return not all(map(same_bits, one[0], two[0])) or differs(one[1], two[1])
