"""LazyTensor: a torch tensor whose values are late; one image or a batch of images.

Its size, dtype and strides are known and answered at once. A few functions that loaders and training loops
call keep it lazy (``torch.stack``, ``.half()``, ``.contiguous(memory_format=...)``); a move to a device gives a
plain tensor there; anything else computes the values and goes on with them, and the object itself becomes a
plain tensor (``torch.utils.swap_tensors``), so that nothing is computed twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map
from torch.utils.data import get_worker_info

from accel import realise
from accel.packing import pack, unpack
from accel.recipe import Recipe, Step


class Late:
    """What a LazyTensor is made of.

    ``lead``: the shape in front of [channels, height, width]; () for a single image. ``interleaved``: the
    memory of an image is ordered [height, width, channels].
    """

    __slots__ = ("interleaved", "lead", "lock", "recipes", "value")

    def __init__(self, recipes: tuple[Recipe, ...], lead: tuple[int, ...], interleaved: bool) -> None:
        self.recipes = recipes
        self.lead = lead
        self.interleaved = interleaved
        self.lock = threading.Lock()
        self.value: torch.Tensor | None = None

    def compute(self, *, shared: bool = False) -> torch.Tensor:
        batch = realise.tensors(self.recipes, interleaved=self.interleaved, shared=shared)
        return batch if len(self.lead) == 1 else batch.view(*self.lead, *batch.shape[1:])


class LazyTensor(torch.Tensor):
    """A ``torch.Tensor`` on the CPU with late values; see the module's docstring."""

    late: Late

    @staticmethod
    def of(
        recipes: tuple[Recipe, ...],
        lead: tuple[int, ...],
        image_shape: tuple[int, int, int],
        dtype: torch.dtype,
        interleaved: bool = False,
    ) -> LazyTensor:
        """Make one; all recipes must come out as ``image_shape`` (channels, height, width) of ``dtype``."""
        channels, height, width = image_shape
        inner = (1, width * channels, channels) if interleaved else (height * width, width, 1)
        outer, step = [], channels * height * width
        for length in reversed(lead):
            outer.insert(0, step)
            step *= length
        tensor: LazyTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            LazyTensor, (*lead, *image_shape), strides=(*outer, *inner), dtype=dtype
        )
        tensor.late = Late(recipes, lead, interleaved)
        return tensor

    def value(self, *, shared: bool = False) -> torch.Tensor:
        """The values as a plain tensor; this object becomes it, unless something still refers to the shell.

        Raises:
            DecodeError: an image cannot be decoded.
        """
        late = self.__dict__.get("late")
        if late is None:  # another thread was faster: this is a plain tensor by now
            return self
        with late.lock:
            if type(self) is not LazyTensor:
                return self
            if late.value is None:
                late.value = late.compute(shared=shared)
            value: torch.Tensor = late.value
            try:
                torch.utils.swap_tensors(self, value)
            except RuntimeError:  # weak references to one of them: hand out the value beside the shell
                return value
            late.value = None
            return self

    def then(self, *steps: Step, dtype: torch.dtype, interleaved: bool | None = None) -> LazyTensor:
        """This tensor with more value steps recorded; ``dtype`` is what they lead to."""
        late = self.late
        if interleaved is None:
            interleaved = late.interleaved
        recipes = tuple(Recipe(source, pixels, values + steps) for source, pixels, values in late.recipes)
        return LazyTensor.of(recipes, late.lead, _metadata(self).shape[-3:], dtype, interleaved)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        handler = _HANDLERS.get(func)
        if handler is not None and _is_late(args[0]):
            result = handler(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*tree_map(_plain, args), **tree_map(_plain, kwargs))

    @classmethod
    def __torch_dispatch__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # reached only where __torch_function__ is disabled
        return func(*tree_map(_plain, args), **tree_map(_plain, kwargs or {}))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.value().numpy()
        return array if dtype is None and not copy else np.array(array, dtype=dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return _clone(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Encoded bytes and recipes; nothing is decoded, and nothing can fail (see ``accel.packing``)."""
        late = self.late
        shape, dtype = tuple(_metadata(self).shape[-3:]), _metadata(self).dtype
        packed = pack(late.recipes, shared=get_worker_info() is not None)
        return _rebuild, (packed, late.lead, shape, dtype, late.interleaved)


def stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Late tensors as one more late tensor, or, in a worker of a host backend, computed into shared memory.

    None where they cannot be one program: some are plain, their dtypes or backends differ.

    Raises:
        RuntimeError: torch's own, for unequal shapes.
    """
    if not _is_late(tensors):
        return None
    metas = [_metadata(tensor) for tensor in tensors]
    first = metas[0]
    if any(meta.shape != first.shape for meta in metas):
        return torch.stack([torch.empty(meta.shape, device="meta") for meta in metas])  # raises
    lates = [tensor.late for tensor in tensors]  # type: ignore[attr-defined]
    recipes = tuple(recipe for late in lates for recipe in late.recipes)
    if any(meta.dtype != first.dtype for meta in metas) or not realise.alike(recipes):
        return None
    lead = (len(tensors), *lates[0].lead)
    batch = LazyTensor.of(recipes, lead, tuple(first.shape[-3:]), first.dtype)
    return realised_in_worker(batch)


def realised_in_worker(tensor: LazyTensor) -> torch.Tensor:
    """The tensor, computed into shared memory if this is a DataLoader worker of a host backend."""
    if get_worker_info() is None or not realise.selection_of(tensor.late.recipes).backend.realises_in_workers:
        return tensor
    return tensor.value(shared=True)


class _Metadata:
    """Shape and dtype without the detour through __torch_function__."""

    __slots__ = ("dtype", "shape")

    def __init__(self, tensor: torch.Tensor) -> None:
        with torch._C.DisableTorchFunctionSubclass():
            self.shape = tensor.shape
            self.dtype = tensor.dtype


_metadata = _Metadata


def _is_late(value: Any) -> bool:
    """Whether nothing has its values yet: once computed they may have been changed in place."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_late, value))
    return type(value) is LazyTensor and value.late.value is None


def _plain(value: Any) -> Any:
    return value.value() if type(value) is LazyTensor else value


def _rebuild(
    packed: Any,
    lead: tuple[int, ...],
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    interleaved: bool,
) -> LazyTensor:
    return LazyTensor.of(unpack(packed), lead, shape, dtype, interleaved)


def _stack_handler(tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    if dim != 0 or out is not None or not tensors:
        return NotImplemented
    stacked = stack(tensors)
    return NotImplemented if stacked is None else stacked


def _clone(tensor: LazyTensor, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
    return _laid_out(tensor.then(dtype=_metadata(tensor).dtype), memory_format)


def _laid_out(tensor: LazyTensor, memory_format: torch.memory_format) -> Any:
    """The same values in another memory format, as ``contiguous`` does."""
    interleaved = tensor.late.interleaved
    if memory_format == torch.preserve_format:
        return tensor
    if memory_format == torch.channels_last and len(tensor.late.lead) == 1:
        wanted = True
    elif memory_format == torch.contiguous_format:
        wanted = False
    else:
        return NotImplemented
    if wanted == interleaved:
        return tensor
    return tensor.then(dtype=_metadata(tensor).dtype, interleaved=wanted)


def _contiguous(tensor: LazyTensor, *, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
    return _laid_out(tensor, memory_format)


def _to(tensor: LazyTensor, *args: Any, **kwargs: Any) -> Any:
    if type(tensor) is not LazyTensor or kwargs.pop("copy", False):
        return NotImplemented
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    moved = tensor if dtype is None else _cast(tensor, dtype)
    if memory_format is not None:
        moved = _laid_out(moved, memory_format)
        if moved is NotImplemented:
            return NotImplemented
    if device is None:
        return moved
    return moved.value().to(device, non_blocking=non_blocking)


def _cast(tensor: LazyTensor, dtype: torch.dtype) -> LazyTensor:
    if dtype == _metadata(tensor).dtype:
        return tensor
    return tensor.then(("to", (dtype,)), dtype=dtype)


def _cast_to(dtype: torch.dtype) -> Callable[..., Any]:
    def handler(tensor: LazyTensor, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
        return _laid_out(_cast(tensor, dtype), memory_format)

    return handler


_HANDLERS: dict[Any, Callable[..., Any]] = {
    torch.stack: _stack_handler,
    torch.clone: _clone,
    torch.Tensor.clone: _clone,
    torch.Tensor.to: _to,
    torch.Tensor.contiguous: _contiguous,
    torch.Tensor.half: _cast_to(torch.float16),
    torch.Tensor.bfloat16: _cast_to(torch.bfloat16),
    torch.Tensor.float: _cast_to(torch.float32),
    torch.Tensor.double: _cast_to(torch.float64),
}

_GETTERS = (
    "shape dtype device layout ndim is_cuda is_cpu is_sparse is_quantized is_nested is_meta is_mkldnn "
    "requires_grad is_leaf grad grad_fn names itemsize nbytes"
).split()
_METHODS = (
    "size dim stride numel nelement ndimension element_size storage_offset is_contiguous is_floating_point "
    "is_complex is_signed get_device __len__ dim_order"
).split()
_METADATA = (
    {getattr(torch.Tensor, name).__get__ for name in _GETTERS if hasattr(torch.Tensor, name)}
    | {getattr(torch.Tensor, name) for name in _METHODS}
    | {torch.numel, torch.is_floating_point, torch.is_complex}
)
