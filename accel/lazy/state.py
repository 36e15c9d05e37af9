"""The state of a lazy tensor, and the ways from its recipes to its values.

``progress`` says how far the values are computed:

============ =================== ============================================================================
state        ``progress``
============ =================== ============================================================================
recorded     None                there are recipes, and nothing else
part         ``Whole``           it is a view of a batch: when it is used, the whole batch is computed
submitted    ``TaskSlice``       its values are computed, or will be, on the host or on a device
ready        a plain tensor      they were computed along with another's of its batch; the user has not seen them
done         ``Done``            they are computed, and the user may have them
============ =================== ============================================================================

A recorded state or a part may be submitted. A thread that needs the values holds the state's lock until they are there,
so they are computed once; they come from the submission, the batch, the ready tensor, or else the recipes. A submission
without values (others of it failed, its values were taken, this process was forked since) leaves the state recorded,
and so does an error: the next use computes them again. Steps can be recorded on states that are not ready or done, and
make a new state. In the end the tensor object becomes the values, and its state is gone; if it cannot (something refers
to it weakly), it returns them to every caller.

Any thread may read a state by ``peek`` (the object's class and attributes may be exchanged at any moment), and
``progress`` without a lock; submitted and done are set under ``changing``, which is held no longer than that. A forked
child has all states as they are, and new locks: values that another thread was computing, and submitted ones, are
computed anew there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from accel.errors import DecodeError
from accel.lazy import shell
from accel.lazy.batch import Images, Whole, changing
from accel.ops.helpers import in_memory
from accel.ops.memory_layout import PLANAR, Layout, strides
from accel.recipes.options import AcceleratorOptions
from accel.recipes.recipe import Recipe, Step, selection_of
from accel.runtime import compute, prefetch, task, torch_ops, worker_batches
from accel.runtime.prefetch import TaskSlice
from accel.system import fork, log, memory
from accel.system.memory import Allocate

ImageShape = tuple[int, int, int]
"""(channels, height, width)"""


class Done(NamedTuple):
    """Computed values.

    Attributes:
        value: the tensor that the user has: the tensor object itself, once it has become the values. alias: the same
            memory, for parts of the tensor; None: it has no parts.
    """

    value: torch.Tensor
    alias: torch.Tensor | None


class LazyState(Images):
    """The state of a lazy tensor: its recipes, and how far its values are computed.

    Attributes:
        lead: the shape in front of ``shape``; () for a single image.
        shape: (channels, height, width) of one image. dtype: the values' dtype.
        after: steps on the batch as a whole, after the recipes; these may change shape and dtype from ``made``.
        layout: how torchvision's tensor lies in memory, and so this one's values.
        laid: whether it is known to lie in memory as its recipe's steps say; a copy may not.
        aliased: whether it is part of a batch, or has parts, so that changes in place show in the others.
        stacked: whether a batch was made of it.
        pending: a mark that is set as long as it has no values; see the function ``pending``.
        lock: held by the thread that computes the values.
    """

    __slots__ = ("after", "aliased", "dtype", "laid", "layout", "lead", "lock", "pending", "shape", "stacked")

    def __init__(
        self,
        recipes: Sequence[Recipe],
        lead: tuple[int, ...],
        shape: ImageShape,
        dtype: torch.dtype,
        layout: Layout = PLANAR,
        after: tuple[Step, ...] = (),
        made: tuple[ImageShape, torch.dtype, bool] | None = None,
    ) -> None:
        self.recipes = recipes
        self.lead = lead
        self.shape = shape
        self.dtype = dtype
        self.layout = layout
        self.after = after
        self.made = made or (shape, dtype, layout.interleaved)
        self.laid = False
        self.stacked = False
        self.aliased = False
        self.progress = None
        self.since = ()
        self.member = None
        self.pending: object = _PENDING
        self.lock = fork.Lock()

    @property
    def value(self) -> torch.Tensor | None:
        """The values; None if they are not computed."""
        return self.progress.value if isinstance(self.progress, Done) else None

    @property
    def recordable(self) -> bool:
        """Whether steps on images may be recorded on it."""
        return self.unseen

    @property
    def unseen(self) -> bool:
        """Whether it has no values yet: computed ones may have been changed in place."""
        progress = self.progress
        if progress is None or isinstance(progress, TaskSlice):
            return True
        return isinstance(progress, Whole) and bool(progress.lazy.unseen)

    @property
    def loader(self) -> int:
        """The number of the DataLoader whose worker it comes from, or 0."""
        return 0 if self.member is None else self.member.batch.loader or 0

    # -- to the values --------------------------------------------------------------------------------------

    def compute(self, allocate: Allocate) -> torch.Tensor:
        """The values, computed on the host; those of an accelerator backend's batch on its device, if that is known.

        The caller holds the lock.
        """
        if isinstance(self.progress, TaskSlice):
            values = self.take()
            if values is not None:
                return self._in_layout(values.to("cpu"))
        if isinstance(self.progress, Whole):
            return _part(*self.progress)
        with Locating(self), shell.suspended():
            images = None
            if self.lead and isinstance(selection_of(self.recipes).options, AcceleratorOptions):
                images = prefetch.compute_on_device(self.recipes, self.made[2], self.loader)
            if images is None and self.member is not None and self.together:
                self.member.batch.compute(self, allocate)
            if images is None and isinstance(self.progress, torch.Tensor):
                images = self.progress
            if images is None:
                images = compute.tensors(self.recipes, interleaved=self.made[2], allocate=allocate)
            return self.shaped(images)

    def computed_on(self, device: torch.device) -> torch.Tensor:
        """The values, computed on a device of an accelerator backend now."""
        return self.shaped(task.compute_now(self.recipes, self.made[2], device))

    def take(self, part: TaskSlice | None = None) -> torch.Tensor | None:
        """Take the values from the submission; None if it has none, or they were taken already.

        ``part``: the part to take them from, in place of its own.
        """
        if isinstance(self.progress, TaskSlice):
            part, self.progress = part or self.progress, None
        if part is None or part.steps != self.since[: len(part.steps)]:  # other steps were foreseen
            return None
        with Locating(self), shell.suspended():
            images = part.take(len(self.recipes))
            if images is None:
                return None
            steps = self.since[len(part.steps) :]
            if images.device.type != "cpu" and not worker_batches.exact(images.dtype, steps):
                return None
            return self.shaped(torch_ops.on_batch(images, steps) if steps else images)

    def shaped(self, images: torch.Tensor) -> torch.Tensor:
        """The recipes' results, [images, ...], in this tensor's shape, after the steps on the batch as a whole."""
        batch = images if len(self.lead) == 1 else images.view(*self.lead, *self.made[0])
        return self._in_layout(torch_ops.on_batch(batch, self.after) if self.after else batch)

    def _in_layout(self, values: torch.Tensor) -> torch.Tensor:
        if self.shape[0] == 1 and not self.after and self.layout.usual:  # the only channel's stride, too, is as stated
            return values.as_strided(values.shape, strides(self.lead, self.shape, self.layout))
        return values if self.layout.usual and not self.after else in_memory(values, *self.layout)


class Locating:
    """A context that adds to a DecodeError its place along a tensor's first axis and, if known, in the dataset."""

    __slots__ = ("_lazy",)

    def __init__(self, lazy: LazyState) -> None:
        self._lazy = lazy

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, DecodeError):
            return
        lead, member = self._lazy.lead, self._lazy.member
        if error.position is not None and lead:
            error.position //= prod(lead[1:])
            error.batch = lead[0]
        if where := "" if member is None else member.where(error.position):
            raise type(error)(f"{error}{where}") from error


def peek(tensor: torch.Tensor) -> LazyState | None:
    """The state of a lazy tensor; None if another thread has just made it a plain one, then also by its class."""
    lazy: LazyState | None = tensor.__dict__.get("lazy")
    if lazy is None:
        with shell.swapping:
            pass
    return lazy


def materialize(tensor: Any, allocate: Allocate) -> torch.Tensor:
    """See ``LazyTensorBase.materialize``."""
    lazy = peek(tensor)
    if lazy is None:
        return tensor  # type: ignore[no-any-return]
    with log.flushing, lazy.lock:
        if peek(tensor) is None:
            return tensor  # type: ignore[no-any-return]
        fresh = not isinstance(lazy.progress, Done)
        if fresh:
            value = lazy.compute(allocate)
            if type(value) is not tensor.becomes or sys.getrefcount(value) > _OURS:  # it is referred to elsewhere
                value = value.as_subclass(tensor.becomes)
            alias = None
            if lazy.aliased:
                with shell.suspended():
                    alias = value.detach()
            with changing:
                lazy.progress, lazy.pending = Done(value, alias), None
        value, alias = lazy.progress
        if (fresh or not value.requires_grad) and shell.swap(tensor, value if fresh else _same(value)):
            # another thread may have got the shell just before
            lazy.progress = Done(tensor, alias)
            return tensor  # type: ignore[no-any-return]
        value.__dict__.update(shell.attributes(tensor))
        shell.replaced(tensor, value)
        return value  # type: ignore[no-any-return]


def _same(value: torch.Tensor) -> torch.Tensor:
    """The same values as another object: one that the user may have must not become the shell."""
    with shell.suspended():
        same = value.detach().as_subclass(type(value))
    same.__dict__.update(value.__dict__)
    return same


def _part(batch: torch.Tensor, lazy: LazyState, index: Any) -> torch.Tensor:
    """Part of a batch, which is computed as a whole for it; ``index``: of it, or a function that shows it."""
    value = materialize(batch, memory.results.empty)
    with shell.suspended():
        alias = lazy.progress.alias if isinstance(lazy.progress, Done) else None
        whole = value.detach() if alias is None else alias
        return index(whole) if callable(index) else whole[index]


def _references() -> int:
    value = object()
    return sys.getrefcount(value)


_OURS = _references()
"""The result of ``sys.getrefcount`` for an object that only one variable refers to."""

_PENDING = object()
"""An object that every state of this process without values refers to."""
_others = 0


def pending() -> int:
    """The number of states without values; if it is 0, no search for them is necessary."""
    return sys.getrefcount(_PENDING) - _others


_others = pending()
