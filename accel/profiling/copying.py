"""Clocks of what copies a batch to a device: ``Tensor.to`` and ``Tensor.cuda``, of plain tensors, between batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function

from accel.system import clocks
from accel.system.clocks import COPY


def moved(original: Callable[..., Any]) -> Callable[..., Any]:
    """A method that may move a tensor: a stage, where it does."""

    @wraps(original)
    def move(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function((self, *args)):  # who overrides the method is to find it by its name, as without clocks
            return handle_torch_function(original, (self, *args), self, *args, **kwargs)
        clock = clocks.clock()
        if not clock.stepping:
            return original(self, *args, **kwargs)
        begun = clocks.now()
        result = original(self, *args, **kwargs)
        if result is not self and result.device != self.device:
            took = clocks.now() - begun
            clock.add(COPY, took)
            clock.copies += took
            clock.inside += took
        return result

    return move


REPLACED = (("torch.Tensor.to", moved), ("torch.Tensor.cuda", moved))
