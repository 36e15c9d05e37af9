"""A step that was captured as one launch, and what it must go on to do for that to hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from accel.runtime import task
from accel.sinking.structure import leaves, mapped
from accel.sinking.trace import Trace, difference


class CaptureRefused(Exception):
    """A step is not captured; the message says why."""


class Graph:
    """A captured step (``torch.cuda.CUDAGraph``).

    Attributes:
        result: what the step returned; a replay writes new values into its tensors.
    """

    def __init__(self, step: Callable[[], Any], device: torch.device, generators: Sequence[torch.Generator]) -> None:
        """Raises: what the step raised, or what made the capture impossible."""
        self._graph, errors = torch.cuda.CUDAGraph(), list[BaseException]()
        pool = torch.cuda.graph_pool_handle()
        for each in generators:
            self._graph.register_generator_state(each)
        try:
            # the current stream is put back by hand: a capture that fails leaves its own
            with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
                side = torch.cuda.Stream(device)
                with torch.cuda.graph(self._graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                    try:
                        self.result = step()
                    except BaseException as error:
                        errors.append(error)
                        raise
        except BaseException as error:
            with suppress(RuntimeError):  # it has been ended, unless the capture became invalid
                torch._C._cuda_endAllocateToPool(device.index, pool)
            raise errors[0] if errors else error from None

    def replay(self) -> None:
        """Run the captured launches on the current stream."""
        self._graph.replay()


class Captured:
    """A step captured over one batch, which is filled before each replay.

    Attributes:
        trace: what the step did when it ran as it is.
    """

    def __init__(self, step: Callable[[Any], Any], batch: Any, trace: Trace, device: torch.device) -> None:
        """Capture the step of a batch, as part of the training: the first ``replay`` runs what is captured here.

        The step's Python runs once. If this raises, nothing has run on the device, and gradients are as before.

        Raises:
            CaptureRefused: the step did not do what ``trace`` did. And whatever the capture raised.
        """
        self.trace = trace
        self._batch = mapped(batch, torch.Tensor, torch.clone)
        self._leaves = leaves(self._batch)
        parameters = [*trace.parameters.values()]
        before = [each.grad for each in parameters]
        again = Trace(trace.step, self._leaves, device)

        def traced() -> Any:
            with again:
                result = step(self._batch)
            return mapped(result, torch.Tensor, torch.Tensor.detach)

        try:
            with task.launchers_paused(device):
                self._graph = Graph(traced, device, trace.generators)
            if reason := again.reason or difference(trace, again):
                raise CaptureRefused(f"it did something else while it was captured: {reason}")
        except BaseException:
            _set(parameters, before)
            raise
        self._parameters, self._gradients = parameters, [each.grad for each in parameters]

    def replay(self, batch: Any) -> Any:
        """Run the step on a batch like the captured one; its result, which the next replay overwrites."""
        for own, given in zip(self._leaves, leaves(batch), strict=True):
            own.copy_(given)
        _set(self._parameters, self._gradients)  # a step outside the graph has replaced them
        self._graph.replay()
        return self._graph.result


def _set(parameters: list[torch.Tensor], gradients: list[torch.Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
