"""LazyTensor: a torch tensor whose values are not computed yet; one image or a batch of images.

``torch.stack``, ``.half()``, ``.contiguous(memory_format=...)`` and the like keep it late; a move to a device gives
a plain tensor there; anything else has its values computed (``accel.lazy.base``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel.backend import backend_of
from accel.lazy import group, mixing, views
from accel.lazy.base import LateTensor, is_late, unfinished
from accel.lazy.loader_batch import send
from accel.lazy.on_device import pin, to_device
from accel.recipe import Step
from accel.runtime import kept, materialize
from accel.system import memory
from accel.system.private_names import private
from accel.workers import slot_pool

private("torch", "_C._nn._parse_to")


class LazyTensor(LateTensor):
    """A ``torch.Tensor`` on the CPU whose values are not computed yet.

    It is one image [channels, height, width] or a batch of them, with one more axis in front, of any dtype that
    torchvision's transforms give. Shape, dtype and strides are known. ``torch.stack``, ``.half()``,
    ``.contiguous(memory_format=...)`` and transforms of a batch keep it lazy; ``.to(device)`` gives a plain tensor
    there; anything else has the values computed, and the object itself becomes a plain tensor. accel makes such
    tensors; the class is there for ``isinstance``.
    """


ForkingPickler.register(LazyTensor, send)  # as torch registers its own tensors


def stack(tensors: Sequence[torch.Tensor]) -> LazyTensor | None:
    """Stack lazy tensors as one more lazy tensor.

    None where they cannot be one program: some have their values, dtypes or backends differ.

    Raises:
        RuntimeError: torch's own, for unequal shapes.
    """
    if not is_late(tensors):
        return None
    lates = [tensor.late for tensor in tensors]  # type: ignore[attr-defined]
    first = lates[0]
    if any(late.shape != first.shape or late.lead != first.lead for late in lates):
        torch.stack([torch.zeros((), device="cpu").expand(late.lead + late.shape) for late in lates])  # raises
        return None
    recipes = tuple(recipe for late in lates for recipe in late.recipes)
    if any(late.dtype != first.dtype or late.after for late in lates) or not materialize.alike(recipes):
        return None
    again = [late for late in lates if late.stacked]
    if again and not backend_of(materialize.selection_of(recipes)).devices:
        size = prod((*first.lead, *first.shape)) * first.dtype.itemsize * len(again)
        if kept.values_fit(size):  # somebody keeps the samples: torchvision's have their values
            for late in again:
                for recipe in late.recipes:
                    recipe.source.asked = 0  # its values are kept: its pixels need not be
            group.group(again)
            return None
    for late in lates:
        late.stacked = True
    return LazyTensor.of(recipes, (len(lates), *first.lead), first.shape, first.dtype)


_fetching = False


@contextmanager
def fetching() -> Iterator[None]:
    """Let what is stacked stay lazy while a worker of a DataLoader fetches a batch: that will be computed whole."""
    global _fetching
    _fetching = True
    try:
        yield
    finally:
        _fetching = False


def evaluated_in_worker(tensor: LateTensor) -> torch.Tensor:
    """Compute a tensor into shared memory if this is a DataLoader worker of a host backend."""
    late = unfinished(tensor)
    if get_worker_info() is None or late is None or backend_of(materialize.selection_of(late.recipes)).devices:
        return tensor
    slots = slot_pool.of_worker()
    return LateTensor.evaluate(tensor, memory.shared if slots is None else slots.empty)


# -- functions that keep a tensor late; NotImplemented has the values computed ------------------------------


def stack_late(tensors: Sequence[torch.Tensor], dim: int = 0, *, out: Any = None) -> Any:
    if dim != 0 or out is not None or not tensors:
        return NotImplemented
    stacked = stack(tensors)
    if stacked is None:
        return NotImplemented
    return stacked if _fetching else evaluated_in_worker(stacked)


def clone(tensor: LateTensor, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
    late, copy = tensor.late, tensor.then()
    if late.part is not None:
        copy.late.part, copy.late.since = late.part.twin(), late.since
    return _ordered(copy, memory_format)


def contiguous(tensor: LateTensor, *, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
    if memory_format == torch.preserve_format:
        return NotImplemented
    # of one channel or one pixel: in any order
    as_it_is = not tensor.late.after and tensor.is_contiguous(memory_format=memory_format)
    return tensor if as_it_is else _ordered(tensor, memory_format)


def _ordered(tensor: LateTensor, memory_format: torch.memory_format) -> Any:
    late = tensor.late
    if memory_format == torch.channels_last and len(late.lead) == 1:
        interleaved = True
    elif memory_format == torch.contiguous_format:
        interleaved = False
    elif memory_format == torch.preserve_format:
        interleaved = late.interleaved
    else:
        return NotImplemented
    if late.after:
        ordered = memory_format == torch.preserve_format
        return tensor if ordered else tensor.called("contiguous", (memory_format,))
    if interleaved == late.interleaved:
        return tensor
    return _onwards(tensor, tensor.then(interleaved=interleaved), ("contiguous", (memory_format,)))


_CASTS = frozenset(
    {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool}
    | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
)
"""The dtypes that casts are recorded to: torch casts to and from any of them without a warning."""


def _cast(tensor: LateTensor, dtype: torch.dtype) -> Any:
    if dtype == tensor.late.dtype:
        return tensor
    if dtype not in _CASTS:
        return NotImplemented
    step = ("to", (dtype,))
    return _onwards(tensor, tensor.then(step, dtype=dtype), step)


def _onwards(before: LateTensor, after: LateTensor, step: Step) -> LateTensor:
    """The tensor after one step that can also be done to what has been submitted without it."""
    if before.late.part is not None and not after.late.after:
        after.late.part, after.late.since = before.late.part, (*before.late.since, step)
    return after


def _cast_to(dtype: torch.dtype) -> Callable[..., Any]:
    def handler(tensor: LateTensor, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
        late = _cast(tensor, dtype)
        return late if late is NotImplemented else _ordered(late, memory_format)

    return handler


def to(tensor: LateTensor, *args: Any, **kwargs: Any) -> Any:
    copy = kwargs.pop("copy", False)
    device: Any  # or None
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    late = tensor if dtype is None else _cast(tensor, dtype)
    if memory_format is not None and late is not NotImplemented:
        late = _ordered(late, memory_format)
    if late is NotImplemented:
        return NotImplemented
    if device is not None and device.type == "cpu" and copy:
        return NotImplemented
    if device is not None:
        return to_device(late, device, non_blocking)
    return late.clone() if copy and late is tensor else late


def cuda(
    tensor: LateTensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> Any:
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
    return to(tensor, device, non_blocking=non_blocking, memory_format=memory_format)


def cpu(tensor: LateTensor, memory_format: torch.memory_format = torch.preserve_format) -> Any:
    return to(tensor, torch.device("cpu"), memory_format=memory_format)


def pin_memory(tensor: LateTensor, device: Any = None) -> Any:
    return tensor if pin(tensor) else NotImplemented


def is_pinned(tensor: LateTensor, device: Any = None) -> bool:
    return tensor.late.part is not None  # there is nothing to be gained from pinning it


LazyTensor.handlers = {
    torch.stack: stack_late,
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
    torch.Tensor.add_: mixing.add_in_place,
    torch.Tensor.half: _cast_to(torch.float16),
    torch.Tensor.bfloat16: _cast_to(torch.bfloat16),
    torch.Tensor.float: _cast_to(torch.float32),
    torch.Tensor.double: _cast_to(torch.float64),
    **dict.fromkeys(LateTensor.either, mixing.multiplied),
}
