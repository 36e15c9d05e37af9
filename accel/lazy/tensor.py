"""LazyTensor: a torch tensor whose values are late; one image or a batch of images.

``torch.stack``, ``.half()``, ``.contiguous(memory_format=...)`` and the like keep it late; a move to a device gives
a plain tensor there; anything else has its values computed (``accel.lazy.late``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel.lazy import mixing
from accel.lazy.late import LateTensor, is_late, unfinished
from accel.lazy.shipping import send
from accel.lazy.submit import pin, to_device
from accel.running import realise
from accel.system import memory
from accel.system.seams import private
from accel.workers import ring

private("torch", "_C._nn._parse_to")


class LazyTensor(LateTensor):
    """A ``torch.Tensor`` on the CPU with late values; see the module's docstring."""


ForkingPickler.register(LazyTensor, send)  # as torch registers its own tensors


def stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Late tensors as one more late tensor, or, in a worker of a host backend, computed into shared memory.

    None where they cannot be one program: some have their values, dtypes or backends differ.

    Raises:
        RuntimeError: torch's own, for unequal shapes.
    """
    if not is_late(tensors):
        return None
    lates = [tensor.late for tensor in tensors]  # type: ignore[attr-defined]
    first = lates[0]
    if any(late.shape != first.shape or late.lead != first.lead for late in lates):
        return torch.stack([torch.zeros((), device="cpu").expand(late.lead + late.shape) for late in lates])  # raises
    recipes = tuple(recipe for late in lates for recipe in late.recipes)
    if any(late.dtype != first.dtype or late.after for late in lates) or not realise.alike(recipes):
        return None
    return evaluated_in_worker(LazyTensor.of(recipes, (len(lates), *first.lead), first.shape, first.dtype))


def evaluated_in_worker(tensor: LateTensor) -> torch.Tensor:
    """The tensor, computed into shared memory if this is a DataLoader worker of a host backend."""
    late = unfinished(tensor)
    if get_worker_info() is None or late is None or realise.selection_of(late.recipes).backend.devices:
        return tensor
    slots = ring.of_worker()
    return LateTensor.evaluate(tensor, memory.shared if slots is None else slots.empty)


# -- functions that keep a tensor late; NotImplemented has the values computed ------------------------------


def stack_late(tensors: Sequence[torch.Tensor], dim: int = 0, *, out: Any = None) -> Any:
    if dim != 0 or out is not None or not tensors:
        return NotImplemented
    stacked = stack(tensors)
    return NotImplemented if stacked is None else stacked


def clone(tensor: LateTensor, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
    return contiguous(tensor.then(), memory_format=memory_format)


def contiguous(tensor: LateTensor, *, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
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
        return tensor if ordered else _onwards(tensor, tensor.called("contiguous", (memory_format,)))
    return tensor if interleaved == late.interleaved else _onwards(tensor, tensor.then(interleaved=interleaved))


def _cast(tensor: LateTensor, dtype: torch.dtype) -> LateTensor:
    return tensor if dtype == tensor.late.dtype else _onwards(tensor, tensor.then(("to", (dtype,)), dtype=dtype))


def _onwards(before: LateTensor, after: LateTensor) -> LateTensor:
    """The tensor after one step that can also be done to what has been submitted without it."""
    part = before.late.part
    after.late.member = before.late.member
    if part is not None and (after.late.after or before.late.dtype in (part.dtype, after.late.dtype)):
        # on what was submitted one cast can be made, not a second one
        after.late.part = part
    return after


def _cast_to(dtype: torch.dtype) -> Callable[..., Any]:
    def handler(tensor: LateTensor, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
        return contiguous(_cast(tensor, dtype), memory_format=memory_format)

    return handler


def to(tensor: LateTensor, *args: Any, **kwargs: Any) -> Any:
    copy = kwargs.pop("copy", False)
    device: Any  # or None
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    late = tensor if dtype is None else _cast(tensor, dtype)
    if memory_format is not None:
        late = contiguous(late, memory_format=memory_format)
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
    torch.Tensor.view: mixing.view,
    torch.Tensor.reshape: mixing.view,
    torch.Tensor.add_: mixing.add_in_place,
    torch.Tensor.half: _cast_to(torch.float16),
    torch.Tensor.bfloat16: _cast_to(torch.bfloat16),
    torch.Tensor.float: _cast_to(torch.float32),
    torch.Tensor.double: _cast_to(torch.float64),
    **dict.fromkeys(LateTensor.either, mixing.multiplied),
}
