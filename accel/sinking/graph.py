"""A step's launches on a device, captured once and replayed as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from accel.sinking.structure import mapped


class Graph:
    """A captured step (``torch.cuda.CUDAGraph``).

    Attributes:
        result: what the step returned; a replay writes new values into its tensors.
    """

    def __init__(self, step: Callable[[], Any], device: torch.device, generators: Sequence[torch.Generator]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        for each in generators:
            if each.device.type == device.type:
                self._graph.register_generator_state(each)
        with torch.cuda.device(device), torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self.result = mapped(step(), torch.Tensor, torch.Tensor.detach)

    def replay(self) -> None:
        """Run the captured launches on the current stream."""
        self._graph.replay()
