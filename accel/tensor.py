"""LazyTensor: a torch tensor whose values are late; one image or a batch of images.

Its size, dtype and strides are known and answered at once. A few functions that loaders and training loops
call keep it lazy (``torch.stack``, ``.half()``, ``.contiguous(memory_format=...)``); a move to a device gives a
plain tensor there; anything else computes the values and goes on with them, and the object itself becomes a
plain tensor (``torch.utils.swap_tensors``), so that nothing is computed twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map
from torch.utils.data import get_worker_info

from accel import counters, memory, realise, ring
from accel.caller import caller
from accel.errors import DecodeError
from accel.memory import Allocate
from accel.packing import Packed, pack, unpack
from accel.recipe import Recipe, Step

_make = torch.Tensor._make_wrapper_subclass

ImageShape = tuple[int, int, int]
"""(channels, height, width)"""


class Late:
    """What a LazyTensor is made of.

    Attributes:
        recipes: the images, in order. lead: the shape in front of ``shape``; () for a single image.
        shape: of one image. dtype: of the values.
        interleaved: the memory of an image is ordered [height, width, channels].
        value: the values, once computed, where the tensor object itself could not become them.
    """

    __slots__ = ("dtype", "interleaved", "lead", "lock", "recipes", "shape", "value")

    def __init__(
        self,
        recipes: tuple[Recipe, ...],
        lead: tuple[int, ...],
        shape: ImageShape,
        dtype: torch.dtype,
        interleaved: bool,
    ) -> None:
        self.recipes = recipes
        self.lead = lead
        self.shape = shape
        self.dtype = dtype
        self.interleaved = interleaved
        self.lock = threading.Lock()
        self.value: torch.Tensor | None = None

    def compute(self, allocate: Allocate) -> torch.Tensor:
        try:
            with torch.inference_mode(False):  # the values outlive the mode of whoever asks first
                images = realise.tensors(self.recipes, interleaved=self.interleaved, allocate=allocate)
                return images if len(self.lead) == 1 else images.view(*self.lead, *self.shape)
        except DecodeError as error:
            if error.position is not None and self.lead:
                error.position //= prod(self.lead[1:])
                error.batch = self.lead[0]
            raise


@lru_cache(maxsize=1024)
def _strides(lead: tuple[int, ...], shape: ImageShape, interleaved: bool) -> tuple[int, ...]:
    """Those torchvision's tensor has: images one after another, each in its memory order."""
    channels, height, width = shape
    strides = [1, width * channels, channels] if interleaved else [height * width, width, 1]
    step = channels * height * width
    for length in reversed(lead):
        strides.insert(0, step)
        step *= length
    return tuple(strides)


class LazyTensor(torch.Tensor):
    """A ``torch.Tensor`` on the CPU with late values; see the module's docstring."""

    late: Late

    @staticmethod
    def of(
        recipes: tuple[Recipe, ...],
        lead: tuple[int, ...],
        shape: ImageShape,
        dtype: torch.dtype,
        interleaved: bool = False,
    ) -> LazyTensor:
        """Make one, of recipes that all come out as ``shape`` and ``dtype``; see ``Late``."""
        tensor: LazyTensor = _make(
            LazyTensor, (*lead, *shape), strides=_strides(lead, shape, interleaved), dtype=dtype
        )
        tensor.late = Late(recipes, lead, shape, dtype, interleaved)
        return tensor

    def evaluate(self, allocate: Allocate = memory.results.empty) -> torch.Tensor:
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
                late.value = late.compute(allocate)
            value: torch.Tensor = late.value
            try:
                torch.utils.swap_tensors(self, value)
            except RuntimeError:  # weak references to one of them: hand out the value beside the shell
                return value
            late.value = None
            return self

    def then(self, *steps: Step, dtype: torch.dtype | None = None, interleaved: bool | None = None) -> LazyTensor:
        """A new tensor: this one with more value steps recorded, which lead to ``dtype``."""
        late = self.late
        recipes = tuple([Recipe(source, pixels, values + steps) for source, pixels, values in late.recipes])
        return LazyTensor.of(
            recipes,
            late.lead,
            late.shape,
            late.dtype if dtype is None else dtype,
            late.interleaved if interleaved is None else interleaved,
        )

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _METADATA and is_late(args[0]):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        handler = _HANDLERS.get(func)
        if handler is not None and args and is_late(args[0]):
            result = handler(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*tree_map(_plain, args), **tree_map(_plain, kwargs))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub knows only the disabled one
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # reached only where __torch_function__ is disabled
        return func(*tree_map(_plain, args), **tree_map(_plain, kwargs or {}))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.evaluate().numpy()
        return array if dtype is None and not copy else np.array(array, dtype=dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return self.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As a plain tensor: what is saved can be loaded without accel."""
        return self.evaluate().__reduce_ex__(protocol)


def _send(tensor: LazyTensor) -> Any:
    """How a late tensor goes to another process: encoded bytes and recipes.

    Nothing is decoded and nothing can fail, for this may run in a queue's feeder thread (see ``accel.packing``).
    """
    late: Late | None = tensor.__dict__.get("late")
    if late is None or late.value is not None:  # somebody has its values
        return _receive_value, (tensor if late is None else late.value,)
    packed = pack(late.recipes, shared=get_worker_info() is not None)
    return _receive, (packed, late.lead, late.shape, late.dtype, late.interleaved)


def _receive(
    packed: Packed, lead: tuple[int, ...], shape: ImageShape, dtype: torch.dtype, interleaved: bool
) -> LazyTensor:
    return LazyTensor.of(unpack(packed), lead, shape, dtype, interleaved)


def _receive_value(value: torch.Tensor) -> torch.Tensor:
    return value


ForkingPickler.register(LazyTensor, _send)  # as torch registers its own tensors


def is_late(value: Any) -> bool:
    """Whether a tensor, or every tensor of a list or tuple, is late and nobody has its values yet.

    Values that somebody has may have been changed in place: nothing more is recorded on such a tensor.
    """
    if isinstance(value, (list, tuple)):
        return all(map(is_late, value))
    return type(value) is LazyTensor and value.late.value is None


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
        return torch.stack([torch.empty(late.lead + late.shape, device="meta") for late in lates])  # raises
    recipes = tuple(recipe for late in lates for recipe in late.recipes)
    if any(late.dtype != first.dtype for late in lates) or not realise.alike(recipes):
        return None
    return evaluated_in_worker(LazyTensor.of(recipes, (len(lates), *first.lead), first.shape, first.dtype))


def evaluated_in_worker(tensor: LazyTensor) -> torch.Tensor:
    """The tensor, computed into shared memory if this is a DataLoader worker of a host backend."""
    worker = get_worker_info()
    if worker is None or not realise.selection_of(tensor.late.recipes).backend.realises_in_workers:
        return tensor
    slots = ring.of_worker(worker.id)
    return tensor.evaluate(memory.shared if slots is None else slots.empty)


def _plain(value: Any) -> Any:
    if type(value) is not LazyTensor:
        return value
    if not value.late.lead and value.late.value is None:
        in_pipeline = get_worker_info() is not None
        counters.early(f"the values of a single late tensor were asked for by {caller()}", loses=in_pipeline)
    return value.evaluate()


# -- functions that keep a tensor late; NotImplemented has the values computed ------------------------------


def _stack(tensors: Sequence[torch.Tensor], dim: int = 0, *, out: Any = None) -> Any:
    if dim != 0 or out is not None or not tensors:
        return NotImplemented
    stacked = stack(tensors)
    return NotImplemented if stacked is None else stacked


def _clone(tensor: LazyTensor, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
    return _contiguous(tensor.then(), memory_format=memory_format)


def _contiguous(tensor: LazyTensor, *, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
    late = tensor.late
    if memory_format == torch.channels_last and len(late.lead) == 1:
        interleaved = True
    elif memory_format == torch.contiguous_format:
        interleaved = False
    elif memory_format == torch.preserve_format:
        interleaved = late.interleaved
    else:
        return NotImplemented
    return tensor if interleaved == late.interleaved else tensor.then(interleaved=interleaved)


def _cast(tensor: LazyTensor, dtype: torch.dtype) -> LazyTensor:
    return tensor if dtype == tensor.late.dtype else tensor.then(("to", (dtype,)), dtype=dtype)


def _cast_to(dtype: torch.dtype) -> Callable[..., Any]:
    def handler(tensor: LazyTensor, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
        return _contiguous(_cast(tensor, dtype), memory_format=memory_format)

    return handler


def _to(tensor: LazyTensor, *args: Any, **kwargs: Any) -> Any:
    if kwargs.pop("copy", False):
        return NotImplemented
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    late = tensor if dtype is None else _cast(tensor, dtype)
    if memory_format is not None:
        late = _contiguous(late, memory_format=memory_format)
        if late is NotImplemented:
            return NotImplemented
    return late if device is None else late.evaluate().to(device, non_blocking=non_blocking)


_HANDLERS: dict[Any, Callable[..., Any]] = {
    torch.stack: _stack,
    torch.clone: _clone,
    torch.Tensor.clone: _clone,
    torch.Tensor.to: _to,
    torch.Tensor.contiguous: _contiguous,
    torch.Tensor.half: _cast_to(torch.float16),
    torch.Tensor.bfloat16: _cast_to(torch.bfloat16),
    torch.Tensor.float: _cast_to(torch.float32),
    torch.Tensor.double: _cast_to(torch.float64),
}

_GETTERS = [
    "shape",
    "dtype",
    "device",
    "layout",
    "ndim",
    "is_cuda",
    "is_cpu",
    "is_sparse",
    "is_quantized",
    "is_nested",
    "is_meta",
    "is_mkldnn",
    "requires_grad",
    "is_leaf",
    "grad",
    "grad_fn",
    "names",
    "itemsize",
    "nbytes",
]
_METHODS = [
    "size",
    "dim",
    "stride",
    "numel",
    "nelement",
    "ndimension",
    "element_size",
    "storage_offset",
    "is_contiguous",
    "is_floating_point",
    "is_complex",
    "is_signed",
    "get_device",
    "__len__",
    "dim_order",
]
_METADATA = (
    {getattr(torch.Tensor, name).__get__ for name in _GETTERS if hasattr(torch.Tensor, name)}
    | {getattr(torch.Tensor, name) for name in _METHODS}
    | {torch.numel, torch.is_floating_point, torch.is_complex}
)
