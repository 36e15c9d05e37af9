"""Clocks of copies to a device: ``Tensor.to`` and ``Tensor.cuda`` of plain tensors, in the training step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function

from accel.lazy.tensor_base import LazyTensorBase
from accel.system.timing import clocks
from accel.system.timing.clocks import COPY


def moved(original: Callable[..., Any]) -> Callable[..., Any]:
    """Time a method that may move a tensor to another device; calls that do not are no part of the stage."""

    @wraps(original)
    def move(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        # a class that overrides the method must find it by its name, as without clocks
        overridden = has_torch_function((self, *args))
        method = partial(handle_torch_function, original, (self, *args)) if overridden else original
        clock = clocks.clock()
        if not clock.stepping or isinstance(self, LazyTensorBase):  # lazy ones have a clock of their own
            return method(self, *args, **kwargs)
        outside, begun = clock.inside, clocks.now()
        result = method(self, *args, **kwargs)
        if isinstance(result, torch.Tensor) and result is not self and result.device != self.device:
            took = clocks.now() - begun
            ns = took - (clock.inside - outside)
            clock.add(COPY, ns)
            clock.copies += ns
            clock.inside = outside + took
        return result

    return move


REPLACED = (("torch.Tensor.to", moved), ("torch.Tensor.cuda", moved))
