"""The shell: a tensor object without memory, which stands for values until it becomes them.

torch's modes that see every operation (FakeTensorMode, ``make_fx``, a user's own) must see the values, but not their
computation.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch

from accel.system import fork
from accel.system.private_names import private

own = private(
    "torch",
    "Tensor._make_wrapper_subclass",
    "Tensor._use_count",
    "_C.DisableTorchFunctionSubclass",
    "_C._set_throw_on_mutable_data_ptr",
    "_C._swap_tensor_impl",
    "_C._len_torch_dispatch_stack",
    "_C._DisableFuncTorch",
)
ops = private("torch._ops", "_len_torch_dispatch_stack_pre_dispatch")
dispatch = private("torch.utils._python_dispatch", "_disable_current_modes")

_GETTERS = """
    shape dtype device layout ndim is_cuda is_cpu is_sparse is_quantized is_nested is_meta is_mkldnn requires_grad
    is_leaf grad grad_fn names itemsize nbytes
"""
_METHODS = """
    size dim stride numel nelement ndimension element_size storage_offset is_contiguous is_floating_point is_complex
    is_signed get_device __len__ dim_order
"""
METADATA = (
    {getattr(torch.Tensor, name).__get__ for name in _GETTERS.split() if hasattr(torch.Tensor, name)}
    | {getattr(torch.Tensor, name) for name in _METHODS.split()}
    | {torch.numel, torch.is_floating_point, torch.is_complex}
)
"""torch's functions that the shell itself answers, without values."""

T = TypeVar("T", bound=torch.Tensor)

_CPU = torch.device("cpu")

_NO_MEMORY = (
    "C++ code asked for the memory of a lazy tensor of accel's, whose values are not computed yet; "
    "any function of torch on it computes them, images.detach() for one"
)


def _refuse_memory(shell: torch.Tensor) -> None:
    """Have C++ code that asks for the tensor's memory directly raise RuntimeError; it would get a null pointer."""
    if hasattr(torch._C, "_set_storage_access_error_msg"):  # builds with CUDA
        torch._C._set_storage_access_error_msg(shell, _NO_MEMORY)
    elif hasattr(torch._C, "_set_storage_data_ptr_access_error_msg"):  # builds without, by a longer way
        with torch._C.DisableTorchFunctionSubclass():
            torch._C._set_storage_data_ptr_access_error_msg(shell.untyped_storage()._cdata, _NO_MEMORY)
    else:
        torch._C._set_throw_on_mutable_data_ptr(shell)  # for all functions but the untyped const_data_ptr()


class Absent:
    """An attribute that a class does not have although its base has it: reading it raises AttributeError."""

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError("lazy tensors are exported by __dlpack__")


def make(cls: type[T], shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, offset: int) -> T:
    """A tensor object of a class, on the CPU, shaped and strided as torchvision's; ``offset``: the storage offset."""
    tensor: T = torch.Tensor._make_wrapper_subclass(
        cls, shape, strides=strides, storage_offset=offset, dtype=dtype, device=_CPU
    )
    _refuse_memory(tensor)
    return tensor


def attributes(tensor: torch.Tensor) -> dict[str, Any]:
    """The attributes that the user has set on the object."""
    return {name: value for name, value in tensor.__dict__.items() if name != "lazy"}


def swap(shell: torch.Tensor, value: torch.Tensor) -> bool:
    """Make ``shell`` the tensor that ``value`` is; False, with nothing done, if one of them is referred to elsewhere.

    As torch.utils.swap_tensors does, but the class last: while another thread still sees a lazy tensor, it waits for
    the lock that is held here.
    """
    uses = own.Tensor._use_count  # torch 2.14 declares no type for it
    if weakref.getweakrefs(shell) or weakref.getweakrefs(value) or max(uses(shell), uses(value)) > 1:
        return False
    with swapping:
        value.__dict__.update(attributes(shell))
        torch._C._swap_tensor_impl(shell, value)
        shell.__dict__, value.__dict__ = value.__dict__, shell.__dict__
        shell.__class__, value.__class__ = value.__class__, shell.__class__
    return True


swapping = threading.RLock()
"""Held while a tensor is neither lazy nor plain."""

fork.wait_for(lambda: swapping, fork.SWAPS)


# -- torch's modes -----------------------------------------------------------------------------------------


def _any() -> bool:
    return bool(torch._C._len_torch_dispatch_stack() or ops._len_torch_dispatch_stack_pre_dispatch())


def suspended() -> AbstractContextManager[object]:
    """A context for computing values outside of the calling code's modes and torch.func transformations.

    The values outlive these, and a tracer must not see their computation.
    """
    return _all_suspended() if torch.is_inference_mode_enabled() or _any() else torch._C._DisableFuncTorch()


@contextmanager
def _all_suspended() -> Iterator[None]:
    inference = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
    with inference, dispatch._disable_current_modes(), torch._C._DisableFuncTorch():
        yield


def replaced(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Have a tracer treat ``value`` as it does ``tensor``, for instance as an argument of the traced function."""
    if not _any():
        return
    tracing: Any = sys.modules.get("torch.fx.experimental.proxy_tensor")
    mode = None if tracing is None else tracing.get_proxy_mode()
    if mode is not None and tensor in mode.tracer.tensor_tracker:
        mode.tracer.tensor_tracker[value] = mode.tracer.tensor_tracker[tensor]
