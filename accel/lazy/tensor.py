"""LazyTensor: a torch tensor whose values are not computed yet; one image or a batch of images.

``torch.stack``, ``.half()``, ``.contiguous(memory_format=...)`` and the like keep it lazy; a move to a device returns a
plain tensor there; anything else computes its values (``accel.lazy.tensor_base``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from math import prod
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel.backend import backend_of
from accel.lazy import mixing, placed, views
from accel.lazy.batch import compute_together
from accel.lazy.loader_batch import send
from accel.lazy.on_device import pin, to_device
from accel.lazy.state import LazyState
from accel.lazy.tensor_base import LazyTensorBase, is_lazy, takes
from accel.ops.memory_layout import INTERLEAVED, PLANAR
from accel.processes import slot_pool
from accel.recipes.drawn import gathered
from accel.recipes.recipe import Step, selection_of
from accel.runtime import picture_memory
from accel.system import memory
from accel.system.private_names import private

private("torch", "_C._nn._parse_to")


class LazyTensor(LazyTensorBase):
    """A ``torch.Tensor`` on the CPU whose values are not computed yet.

    It is one image [channels, height, width] or a batch of them, with one more axis in front, of any dtype that
    torchvision's transforms return. Shape, dtype and strides are known. ``torch.stack``, ``.half()``,
    ``.contiguous(memory_format=...)`` and transforms of a batch keep it lazy; ``.to(device)`` returns a plain tensor
    there; anything else computes the values, and the object itself becomes a plain tensor. Only accel makes such
    tensors; the class is there for ``isinstance``.
    """


ForkingPickler.register(LazyTensor, send)  # as torch registers its own tensors


def stack(tensors: Sequence[torch.Tensor]) -> LazyTensor | None:
    """Stack lazy tensors to one more lazy tensor.

    None if they cannot be one program: some have values, or dtypes or backends differ.

    Raises:
        RuntimeError: torch's own, for unequal shapes.
    """
    if not is_lazy(tensors):
        return None
    states = [tensor.lazy for tensor in tensors]  # type: ignore[attr-defined]
    first = states[0]
    if any(lazy.shape != first.shape or lazy.lead != first.lead for lazy in states):
        torch.stack([torch.zeros((), device="cpu").expand(lazy.lead + lazy.shape) for lazy in states])  # raises
        return None
    selection = first.selection
    if any(lazy.dtype != first.dtype or lazy.after or lazy.selection != selection for lazy in states):
        return None
    if first.lead and any(lazy.layout != PLANAR for lazy in states):  # torch may keep the order of such batches
        return None
    if not backend_of(selection).devices and _are_kept(states):
        return None
    for lazy in states:
        lazy.stacked = True
    parts = [lazy.recipes for lazy in states]
    return LazyTensor.of(gathered(parts), (len(states), *first.lead), first.shape, first.dtype)


def _are_kept(states: Sequence[LazyState]) -> bool:
    """Whether the user keeps samples, which were stacked before, and there is room for their values.

    They are then computed together, as samples of torchvision's have values.
    """
    again = [lazy for lazy in states if lazy.stacked]
    if not again:
        return False
    size = prod((*again[0].lead, *again[0].shape)) * again[0].dtype.itemsize * len(again)
    if not picture_memory.values_fit(size):
        return False
    for recipe in chain.from_iterable(lazy.recipes for lazy in again):
        recipe.source.uses = 0  # the values are kept, so the file's pixels need not be
    compute_together(again)
    return True


_fetching = False


@contextmanager
def fetching() -> Iterator[None]:
    """Keep stacked tensors lazy while a DataLoader worker fetches a batch, which will then be computed as a whole."""
    global _fetching
    _fetching = True
    try:
        yield
    finally:
        _fetching = False


def materialized_in_worker(tensor: LazyTensorBase, *, placed: bool = False) -> torch.Tensor:
    """Compute a tensor into shared memory if this is a DataLoader worker of a host backend; ``placed``: of any."""
    lazy = tensor.__dict__.get("lazy")
    if lazy is None or get_worker_info() is None or (not placed and backend_of(selection_of(lazy.recipes)).devices):
        return tensor
    slots = slot_pool.of_worker()
    return LazyTensorBase.materialize(tensor, memory.shared if slots is None else slots.empty)


def collated(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """``stack``, and compute the values if this is a DataLoader worker of a host backend and not in ``fetching``."""
    stacked = stack(tensors)
    return stacked if stacked is None or _fetching else materialized_in_worker(stacked)


# -- functions that keep a tensor lazy; if one returns NotImplemented, the values are computed --------------


def stack_lazy(tensors: Sequence[torch.Tensor], dim: int = 0, *, out: Any = None) -> Any:
    if dim != 0 or out is not None or not tensors:
        return NotImplemented
    stacked = collated(tensors)
    return NotImplemented if stacked is None else stacked


def clone(tensor: LazyTensorBase, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
    lazy, copy = tensor.lazy, tensor.then()
    if lazy.part is not None:
        copy.lazy.since, copy.lazy.progress = lazy.since, lazy.part.twin(copied=True)
    return _ordered(copy, memory_format)


def contiguous(tensor: LazyTensorBase, *, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
    if memory_format == torch.preserve_format:
        return NotImplemented
    # with one channel or one pixel, it is contiguous in any order
    as_it_is = not tensor.lazy.after and tensor.is_contiguous(memory_format=memory_format)
    return tensor if as_it_is else _ordered(tensor, memory_format)


def _ordered(tensor: LazyTensorBase, memory_format: torch.memory_format) -> Any:
    lazy = tensor.lazy
    if memory_format == torch.channels_last and len(lazy.lead) == 1:
        layout = INTERLEAVED
    elif memory_format == torch.contiguous_format:
        layout = PLANAR
    elif memory_format == torch.preserve_format:
        layout = lazy.layout.copied()
    else:
        return NotImplemented
    step: Step = ("contiguous", (memory_format,))
    if lazy.after:
        if memory_format == torch.preserve_format:
            step = ("in_memory", layout)
        return tensor.then(step, layout=layout, kernel=True)
    return tensor if layout == lazy.layout else _onwards(tensor, tensor.then(layout=layout), step)


_CASTS = frozenset(
    {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool}
    | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
)
"""The dtypes that casts are recorded to: torch casts to and from any of them without a warning."""


def _cast(tensor: LazyTensorBase, dtype: torch.dtype) -> Any:
    if dtype == tensor.lazy.dtype:
        return tensor
    if dtype not in _CASTS:
        return NotImplemented
    if tensor.is_placed:
        return placed.cast(tensor, dtype)
    step = ("to", (dtype,))
    return _onwards(tensor, tensor.then(step, dtype=dtype), step)


def _onwards(before: LazyTensorBase, after: LazyTensorBase, step: Step) -> LazyTensorBase:
    """The tensor after a step, still submitted if it was: the step is then done to the submission's result."""
    part = before.lazy.part
    if part is not None and not after.lazy.after:
        after.lazy.since, after.lazy.progress = (*before.lazy.since, step), part
    return after


def _own(tensor: LazyTensorBase) -> tuple[torch.memory_format, ...]:
    """The memory formats that torch takes a tensor to have: whether it has gaps does not matter."""
    interleaved = len(tensor.lazy.lead) == 1 and tensor.lazy.layout.interleaved and not tensor.lazy.layout.transposed
    return torch.preserve_format, torch.channels_last if interleaved else torch.contiguous_format


def to(tensor: LazyTensorBase, *args: Any, **kwargs: Any) -> Any:
    copy = kwargs.pop("copy", False)
    device: Any  # or None
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    lazy = tensor if dtype is None else _cast(tensor, dtype)
    if (
        memory_format is not None
        and lazy is not NotImplemented
        and not (lazy is tensor and memory_format in _own(tensor))
    ):
        lazy = _ordered(lazy, memory_format)
    if lazy is NotImplemented:
        return NotImplemented
    if device is not None and device.type == "cpu" and copy:
        return NotImplemented
    if device is not None:
        return to_device(lazy, device, non_blocking)
    return lazy.clone() if copy and lazy is tensor else lazy


def _to_dtype(dtype: torch.dtype, tensor: LazyTensorBase, **memory_format: torch.memory_format) -> Any:
    return to(tensor, dtype, **memory_format)


def cuda(tensor: LazyTensorBase, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
    return to(tensor, device, non_blocking=non_blocking, memory_format=memory_format)


def cpu(tensor: LazyTensorBase, memory_format: Any = None) -> Any:
    return to(tensor, torch.device("cpu"), memory_format=memory_format)


def pin_memory(tensor: LazyTensorBase, device: Any = None) -> Any:
    return tensor if pin(tensor) else NotImplemented


def is_pinned(tensor: LazyTensorBase, device: Any = None) -> bool:
    return tensor.lazy.part is not None  # pinning a submitted tensor gains nothing


def _first(handler: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """The first handler's result or, if it returns NotImplemented, the other's."""

    def handle(*args: Any, **kwargs: Any) -> Any:
        result = handler(*args, **kwargs) if takes(handler, kwargs) else NotImplemented
        if result is NotImplemented and takes(then, kwargs):
            return then(*args, **kwargs)
        return result

    return handle


placed.PlacedTensor.handlers = {
    **placed.HANDLERS,
    torch.Tensor.to: to,
    torch.Tensor.cuda: cuda,
    torch.Tensor.cpu: cpu,
    torch.Tensor.float: partial(_to_dtype, torch.float32),
    torch.Tensor.half: partial(_to_dtype, torch.float16),
    torch.Tensor.bfloat16: partial(_to_dtype, torch.bfloat16),
}
LazyTensor.handlers = {
    torch.stack: _first(placed.stack_tiles, stack_lazy),
    torch.clone: clone,
    torch.Tensor.clone: clone,
    torch.Tensor.to: to,
    torch.Tensor.cuda: cuda,
    torch.Tensor.cpu: cpu,
    torch.Tensor.pin_memory: pin_memory,
    torch.Tensor.is_pinned: is_pinned,
    torch.Tensor.contiguous: contiguous,
    torch.Tensor.__getitem__: views.item,
    torch.unbind: views.unbind,
    torch.Tensor.unbind: views.unbind,
    torch.unsqueeze: views.unsqueeze,
    torch.Tensor.unsqueeze: views.unsqueeze,
    torch.Tensor.view: mixing.view,
    torch.Tensor.reshape: mixing.view,
    torch.Tensor.add_: mixing.add_in_place,
    torch.Tensor.half: partial(_to_dtype, torch.float16),
    torch.Tensor.bfloat16: partial(_to_dtype, torch.bfloat16),
    torch.Tensor.float: partial(_to_dtype, torch.float32),
    torch.Tensor.double: partial(_to_dtype, torch.float64),
    **dict.fromkeys(LazyTensorBase.either, mixing.multiplied),
}
for _function, _handler in placed.HANDLERS.items():
    _images = LazyTensor.handlers.get(_function)
    LazyTensor.handlers[_function] = _handler if _images is None else _first(_images, _handler)
