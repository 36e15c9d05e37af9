"""A step's launches on a device, captured once and replayed as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch


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
