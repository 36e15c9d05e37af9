"""The base class of lazy tensors.

Size, dtype and strides are known and returned at once. A class lists the functions that keep its tensors lazy
(``handlers``); anything else computes the values and goes on with them, and the object itself becomes a plain tensor
(``torch.utils.swap_tensors``), so that nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch
from torch.utils.data import get_worker_info

from accel.lazy import shell, state
from accel.lazy.state import Done, ImageShape, LazyState, peek
from accel.ops import LEFT, OPS, Left, shape_after, tensor_op
from accel.ops.helpers import same_threads
from accel.ops.memory_layout import PLANAR, Layout, strides
from accel.planning import layouts
from accel.recipes.recipe import Recipe, Step
from accel.recipes.rows import then
from accel.system import counters, memory
from accel.system.caller import caller
from accel.system.memory import Allocate
from accel.system.private_names import private

if TYPE_CHECKING:
    from typing_extensions import Self


pytree = private("torch.utils._pytree", "tree_map")
private("torch", "_C.DisableTorchFunctionSubclass", "_C._DisableTorchDispatch")

T = TypeVar("T", bound="LazyTensorBase")


class LazyTensorBase(torch.Tensor):
    """The base class of lazy tensors, which are on the CPU.

    Attributes:
        lazy: its state. becomes: the class of tensor that it becomes.
        handlers: functions that keep it lazy; if one returns NotImplemented, the values are computed.
        either: those of them that also take a lazy tensor as the second argument.
        is_placed: whether it has images' values in other places (``accel.lazy.placed``), and so no steps on images.
    """

    lazy: LazyState
    becomes: ClassVar[type[torch.Tensor]] = torch.Tensor
    handlers: ClassVar[dict[Any, Callable[..., Any]]] = {}
    is_placed: ClassVar[bool] = False
    either: ClassVar[frozenset[Any]] = frozenset(
        {torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__}
    )
    __dlpack_c_exchange_api__ = shell.Absent()  # its C functions would ask the shell for its memory

    @classmethod
    def of(
        cls,
        recipes: Sequence[Recipe],
        lead: tuple[int, ...],
        shape: ImageShape,
        dtype: torch.dtype,
        layout: Layout = PLANAR,
        after: tuple[Step, ...] = (),
        made: tuple[ImageShape, torch.dtype, bool] | None = None,
        offset: int = 0,
    ) -> Self:
        """Make a lazy tensor of recipes; arguments as for ``LazyState``. ``offset``: its storage offset in a batch."""
        tensor = shell.make(cls, (*lead, *shape), strides(lead, shape, layout), dtype, offset)
        tensor.lazy = LazyState(recipes, lead, shape, dtype, layout, after, made)
        return tensor

    def materialize(self, allocate: Allocate = memory.results.empty) -> torch.Tensor:
        """Compute the values, a plain tensor; this object becomes it, unless something else refers to the object.

        Raises:
            DecodeError: an image cannot be decoded.
        """
        return state.materialize(self, allocate)

    def then(
        self,
        *steps: Step,
        dtype: torch.dtype | None = None,
        layout: Layout | None = None,
        kernel: bool = False,
        on_batch: bool = False,
    ) -> Self:
        """A new tensor: this one with more steps recorded, on the batch as a whole if earlier steps already are.

        Args:
            dtype: the resulting dtype; None: as before.
            layout: how the result lies in memory; None: dense, in the same order.
            kernel: whether torchvision runs the last step, for several images on the batch as a whole.
            on_batch: whether the steps act on several images at once.

        Raises:
            Left: one of the steps is left to torchvision.
        """
        if LEFT and any(name in LEFT for name, _ in steps):
            raise Left
        lazy = self.lazy
        shape = shape_after(lazy.shape, *steps)
        on_batch = on_batch or bool(lazy.after) or (kernel and len(lazy.recipes) > 1)
        if kernel and not tensor_op(steps[-1][0]).elementwise:
            steps = same_threads(lazy.after if on_batch else lazy.recipes[0].steps) + steps
        laid = bool(steps) and not on_batch and (kernel or lazy.laid)
        if laid and not lazy.laid:
            steps = _to_layout(lazy) + steps
        recipes, after = lazy.recipes, lazy.after
        if on_batch:
            after += steps
        else:
            holds_tensors = any(OPS[name].holds_tensors for name, _ in steps)
            recipes = then(tuple(recipes) if holds_tensors else recipes, steps)
        dtype, layout = dtype or lazy.dtype, layout or lazy.layout.copied()
        made = self.of(recipes, lazy.lead, shape, dtype, layout, after, lazy.made if after else None)
        made.lazy.laid = laid
        if lazy.member is not None or lazy.progress is not None:
            # steps on the batch as a whole can be done to the submission's result
            made.lazy.succeed(lazy, *((lazy.part, lazy.since) if len(after) > len(lazy.after) else (None, ())))
        return made

    def as_lazy(self, cls: type[T]) -> T:
        """A lazy tensor of another class with the same values."""
        lazy = self.lazy
        offset = int(self.storage_offset()) if lazy.aliased else 0
        same = cls.of(lazy.recipes, lazy.lead, lazy.shape, lazy.dtype, lazy.layout, lazy.after, lazy.made, offset)
        same.lazy.aliased = lazy.aliased
        same.lazy.succeed(lazy, lazy.progress, lazy.since)
        return same

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in shell.METADATA and records(args[0]):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        handler = cls.handlers.get(func)
        recorded = handler is not None and args and "out" not in kwargs and takes(handler, kwargs)
        if recorded and (records(args[0]) or (func in cls.either and is_lazy(args[1]))):
            try:
                result = handler(*args, **kwargs)  # type: ignore[misc]
            except AttributeError:  # another thread may have computed it meanwhile
                if all(map(records, args[:2])):
                    raise
                result = NotImplemented
            except Left:
                result = NotImplemented
            if result is not NotImplemented:
                return result
        if func in _RESIZING or "out" in kwargs:
            return func(*pytree.tree_map(_resizable, args), **pytree.tree_map(_resizable, kwargs))
        if not kwargs:
            return func(*[_all_plain(each) for each in args])
        return func(*[_all_plain(each) for each in args], **{name: _all_plain(each) for name, each in kwargs.items()})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub knows only the disabled one
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # only reached where __torch_function__ is disabled
        return func(*pytree.tree_map(_plain, args), **pytree.tree_map(_plain, kwargs or {}))

    def __len__(self) -> int:
        return int(self.shape[0])

    def as_subclass(self, cls: Any) -> Any:
        """Like torch's own, whose references would keep this object from becoming the values."""
        if issubclass(cls, LazyTensorBase):
            if is_lazy(self):
                return self.as_lazy(cls)
            cls = cls.becomes
        return values_of(self).as_subclass(cls)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = values_of(self).numpy()
        return array if dtype is None and not copy else np.array(array, dtype=dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        lazy = pending_state(self)
        if lazy is not None and (lazy.aliased or not lazy.layout.usual):
            return deepcopy(LazyTensorBase.materialize(self), memo)
        copy = self.clone()
        copy.__dict__.update(deepcopy(shell.attributes(self), memo))
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a plain tensor, so that it can be loaded without accel."""
        return LazyTensorBase.materialize(self).__reduce_ex__(protocol)


def _to_layout(lazy: LazyState) -> tuple[Step, ...]:
    """The step that lays values out as the tensor's; () if they are, as it was neither copied nor part of a batch."""
    source, before = lazy.recipes[0]
    return () if layouts.of(before, source.header) in (None, lazy.layout) else (("in_memory", lazy.layout),)


def takes(handler: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    """Whether a handler knows these keyword arguments: torch's functions may have others, as ``axis`` for ``dim``."""
    names = _named(handler) if kwargs else None
    return names is None or kwargs.keys() <= names


@cache
def _named(handler: Callable[..., Any]) -> frozenset[str] | None:
    """The names of a handler's parameters; None: it takes any."""
    parameters = signature(handler).parameters
    takes_any = any(each.kind == Parameter.VAR_KEYWORD for each in parameters.values())
    return None if takes_any else frozenset(parameters)


def is_lazy(value: Any) -> bool:
    """Whether steps can be recorded on a tensor, or on every tensor of a list or tuple: it is lazy, without values.

    Computed values may have been changed in place: nothing more is recorded on such a tensor.
    """
    if isinstance(value, LazyTensorBase):
        lazy = peek(value)
        return lazy is not None and (lazy.progress is None or lazy.recordable)
    return isinstance(value, (list, tuple)) and all(map(is_lazy, value))


def records(value: Any) -> bool:
    """Like ``is_lazy``; true also for tensors with images' values in other places, which record what moves values."""
    if isinstance(value, (list, tuple)):
        return all(map(records, value))
    if not getattr(value, "is_placed", False):
        return is_lazy(value)
    lazy = peek(value)
    return lazy is not None and lazy.unseen


def pending_state(value: Any) -> LazyState | None:
    """The state of a tensor that has no values yet; None for other values."""
    if not isinstance(value, LazyTensorBase):
        return None
    lazy = peek(value)
    return None if lazy is None or isinstance(lazy.progress, Done) else lazy


def _plain(value: Any) -> Any:
    if not isinstance(value, LazyTensorBase):
        return value
    if peek(value) is not None:
        return values_of(value)
    kind = getattr(value, "becomes", None)  # none left if another thread has just computed it
    if kind is None:
        return value
    with torch._C.DisableTorchFunctionSubclass(), torch._C._DisableTorchDispatch():
        return torch.Tensor.as_subclass(value, kind)  # a plain tensor that was given a lazy class


def _all_plain(value: Any) -> Any:
    """``_plain`` for all parts of a value; torch's own traversal takes longer than many functions."""
    kind = type(value)
    if kind in _SINGLE or isinstance(value, torch.Tensor):
        return _plain(value)
    if kind is tuple or kind is list:
        return kind([_all_plain(each) for each in value])
    return pytree.tree_map(_plain, value)


_SINGLE = frozenset({int, float, bool, str, slice, type(None), type(...), torch.dtype, torch.device})
"""Types of arguments without parts."""

_RESIZING = {torch.Tensor.resize_, torch.Tensor.resize_as_, torch.Tensor.untyped_storage}


def _resizable(value: Any) -> Any:
    """Like ``_plain``, but with values in torch's own memory, which can be resized, unless they are part of a batch."""
    lazy = pending_state(value)
    own, plain = isinstance(value, LazyTensorBase) and (lazy is None or not lazy.aliased), _plain(value)
    if own and not plain.untyped_storage().resizable():
        with torch._C.DisableTorchFunctionSubclass():
            plain.set_(plain.clone())
    return plain


def values_of(tensor: LazyTensorBase) -> torch.Tensor:
    """The values, for code that does not go on recording; those of a single image are counted as computed early."""
    lazy = peek(tensor)
    alone = lazy is not None and not lazy.lead and not lazy.together
    if alone and (lazy.progress is None or lazy.part is not None):  # type: ignore[union-attr]
        asker = caller()
        apart = get_worker_info() is not None  # elsewhere a script may compute single images, as for inference
        what = f"{asker} asked for the values of a single tensor"
        counters.early(asker, what if apart else None)
    return LazyTensorBase.materialize(tensor)
