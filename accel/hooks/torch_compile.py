"""``torch.compile``, ``jit``, ``export``, ``dlpack``, ``nn.Parameter``: lazy arguments are computed before the call.

A tracer would otherwise follow their computation. Lazy tensors that appear inside a compiled function cause a graph
break, and are computed as if nothing were compiled.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

import torch

from accel.hooks.patch import Attribute, Function
from accel.lazy.tensor_base import LazyTensorBase
from accel.runtime import compute
from accel.system.private_names import private

dynamo = private("torch._C._dynamo.eval_frame", "set_code_exec_strategy", "_FrameAction.SKIP", "_FrameExecStrategy")


def keep_out() -> None:
    """Have torch's compiler neither trace nor compile the computation of lazy values."""
    skip = dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.SKIP)
    entries: list[Any] = [
        LazyTensorBase.__torch_function__.__func__,  # type: ignore[attr-defined]
        LazyTensorBase.__torch_dispatch__.__func__,  # type: ignore[attr-defined]
        LazyTensorBase.materialize,
        compute.tensors,
    ]
    for function in entries:
        function._torchdynamo_disable = True
        dynamo.set_code_exec_strategy(function.__code__, skip)


def materialized(original: Function) -> Function:
    """Wrap a function so that it gets plain tensors in place of lazy ones."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*map(_materialized, args), **{name: _materialized(value) for name, value in kwargs.items()})

    return call


def compile(original: Function) -> Function:
    """``torch.compile``."""

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)
        model = args[0] if args else kwargs.get("model")
        if isinstance(compiled, torch.nn.Module) and compiled is not model:
            compiled.forward = _materialized_compiled(compiled.forward)
        if isinstance(compiled, FunctionType) and model is not None and compiled is not model:
            return _materialized_compiled(compiled)
        return compiled

    return compile


def _new(original: Function) -> Any:
    """``torch.nn.Parameter.__new__``, which treats subclasses of tensors differently."""
    return staticmethod(materialized(original))


def _materialized_compiled(function: Function) -> Function:
    call: Any = materialized(function)
    call._torchdynamo_wrapper_id = id(call)  # how torch recognizes its own wrappers
    return call  # type: ignore[no-any-return]


def _materialized(value: Any, depth: int = 3) -> Any:
    """A value with the lazy tensors in it computed; lists, tuples and dictionaries without any stay the same object."""
    if isinstance(value, LazyTensorBase):
        return LazyTensorBase.materialize(value)
    if not depth or type(value) not in (list, tuple, dict):
        return value
    parts = value.values() if isinstance(value, dict) else value
    settled = [_materialized(part, depth - 1) for part in parts]
    if all(new is old for new, old in zip(settled, parts, strict=True)):
        return value
    return dict(zip(value, settled, strict=True)) if isinstance(value, dict) else type(value)(settled)


PATCHES = (
    Attribute("torch.compile", compile),
    Attribute("torch.nn.Parameter.__new__", _new),
    Attribute("torch.jit.trace", materialized),
    Attribute("torch.export.export", materialized),
    Attribute("torch.to_dlpack", materialized),
    Attribute("torch.utils.dlpack.to_dlpack", materialized),
)
