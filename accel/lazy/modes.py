"""torch's modes that see every operation (FakeTensorMode, ``make_fx``, a user's own), while values are computed.

They are to see the values, and not how these came about.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from accel.system.private_names import private

private("torch", "_C._len_torch_dispatch_stack", "_C._DisableFuncTorch")
ops = private("torch._ops", "_len_torch_dispatch_stack_pre_dispatch")
dispatch = private("torch.utils._python_dispatch", "_disable_current_modes")

_NONE: AbstractContextManager[object] = nullcontext()


def _any() -> bool:
    return bool(torch._C._len_torch_dispatch_stack() or ops._len_torch_dispatch_stack_pre_dispatch())


@contextmanager
def suspended() -> Iterator[None]:
    """Compute values outside of the mode, and the transformation of torch.func, of whoever asks first.

    They outlive these, and no tracer is to see how they come about.
    """
    inference = torch.inference_mode(False) if torch.is_inference_mode_enabled() else _NONE
    with inference, dispatch._disable_current_modes() if _any() else _NONE, torch._C._DisableFuncTorch():
        yield


def replaced(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Have a tracer take ``value`` for what ``tensor`` is to it, such as an argument of what it traces."""
    if not _any():
        return
    tracing: Any = sys.modules.get("torch.fx.experimental.proxy_tensor")
    mode = None if tracing is None else tracing.get_proxy_mode()
    if mode is not None and tensor in mode.tracer.tensor_tracker:
        mode.tracer.tensor_tracker[value] = mode.tracer.tensor_tracker[tensor]
