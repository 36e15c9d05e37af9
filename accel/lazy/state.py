"""What a late tensor is made of, and how that becomes its values."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from accel.errors import DecodeError
from accel.lazy import group, modes
from accel.recipe import Recipe, Step
from accel.runtime import prefetch, torch_ops
from accel.system import fork
from accel.system.memory import Allocate
from accel.system.private_names import private

if TYPE_CHECKING:
    from accel.lazy.base import LateTensor
    from accel.lazy.loader_batch import Member
    from accel.runtime.submissions import Part

private("torch", "_C._DisableFuncTorch")

_NO_MODE = nullcontext()
_making_a_lock = fork.Lock()

ImageShape = tuple[int, int, int]
"""(channels, height, width)"""


class Late:
    """What a LazyTensor is made of.

    Attributes:
        recipes: the images, in order. lead: the shape in front of ``shape``; () for a single image.
        shape: of one image. dtype: of the values.
        interleaved: the memory of an image is ordered [height, width, channels].
        after: steps on the batch as a whole, on what the recipes give.
        made: the shape and dtype of what the recipes give, which ``after`` may change.
        view: torchvision's tensor is a view of part of the columns of a larger one.
        value: the values, once computed, where the tensor object itself could not become them.
        group, ready: see ``accel.lazy.group``.
        whole: of a part of a batch, that batch, what it is made of, and the part's index. aliased: whether it is such
            a part, or has some: what changes its values in place does so in the others. shared: the values, once
            computed, for its parts.
        member: its place in the batch that a DataLoader gave. stacked: whether a batch was made of it.
        part: what it has of a submission. since: casts and orders recorded since then, ahead of ``after``.
        pending: a mark, as long as it has no values; see ``_Pending``.
    """

    __slots__ = (
        "__weakref__",
        "_lock",
        "after",
        "aliased",
        "dtype",
        "group",
        "interleaved",
        "lead",
        "made",
        "member",
        "part",
        "pending",
        "ready",
        "recipes",
        "shape",
        "shared",
        "since",
        "stacked",
        "value",
        "view",
        "whole",
    )

    def __init__(
        self,
        recipes: tuple[Recipe, ...],
        lead: tuple[int, ...],
        shape: ImageShape,
        dtype: torch.dtype,
        interleaved: bool,
        after: tuple[Step, ...] = (),
        made: tuple[ImageShape, torch.dtype] | None = None,
    ) -> None:
        self.recipes = recipes
        self.lead = lead
        self.shape = shape
        self.dtype = dtype
        self.interleaved = interleaved
        self.after = after
        self.made = made or (shape, dtype)
        self.view = False
        self.stacked = False
        self.whole: tuple[LateTensor, Late, Any] | None = None
        self.aliased = False
        self.shared: torch.Tensor | None = None
        self._lock: fork.Lock | None = None
        self.value: torch.Tensor | None = None
        self.group: group.Group | None = None
        self.ready: torch.Tensor | None = None
        self.member: Member | None = None
        self.part: Part | None = None
        self.since: tuple[Step, ...] = ()
        self.pending: object = _PENDING

    def succeeds(self, other: Late, part: Part | None, since: tuple[Step, ...]) -> None:
        """Take the place of another one that it was made from, which is not expected to be used any more."""
        self.part, self.since = part, since
        if other.member is not None:
            other.member.batch.succeed(other.member, self)

    @property
    def lock(self) -> fork.Lock:
        """Held by whoever computes it. Made when that begins: most are never computed, but become part of another."""
        if self._lock is None:
            with _making_a_lock:
                self._lock = self._lock or fork.Lock()
        return self._lock

    def compute(self, allocate: Allocate) -> torch.Tensor:
        """The values on the host: of its submission if there is one, else computed now.

        A batch of an accelerator backend is computed on its device, where that is known.
        """
        images = self.submitted()
        if images is not None:
            return images.to("cpu")
        with self.told():
            if self.lead:
                images = prefetch.compute(self.recipes, self.interleaved, self.loader)
            if images is None:
                images = group.compute(self, allocate)
            return self.shaped(images)

    def submitted(self) -> torch.Tensor | None:
        """The values where they were submitted to; None if there are none to be had. They can be had once."""
        part, self.part = self.part, None
        if part is None:
            return None
        with self.told():
            images = part.take(len(self.recipes))
            if images is None:
                return None
            return self.shaped(torch_ops.on_batch(images, self.since) if self.since else images)

    def shaped(self, images: torch.Tensor) -> torch.Tensor:
        """Images one after another, in this tensor's shape, after the steps on the whole."""
        batch = images if len(self.lead) == 1 else images.view(*self.lead, *self.made[0])
        return torch_ops.on_batch(batch, self.after) if self.after else batch

    @property
    def loader(self) -> int:
        """The number of the DataLoader whose worker it comes from, or 0."""
        return 0 if self.member is None else self.member.batch.loader

    @contextmanager
    def told(self) -> Iterator[None]:
        """What fails in here is told by its place along this tensor's first axis and, where known, in the dataset."""
        try:
            with undisturbed():
                yield
        except DecodeError as error:
            if error.position is not None and self.lead:
                error.position //= prod(self.lead[1:])
                error.batch = self.lead[0]
            where = "" if self.member is None else self.member.where(error.position)
            if not where:
                raise
            raise type(error)(f"{error}{where}") from error


@contextmanager
def undisturbed() -> Iterator[None]:
    """For values to come about, which outlive the mode, and the transformation of torch.func, of whoever asks first.

    No tracer is to see how they do.
    """
    mode = torch.inference_mode(False) if torch.is_inference_mode_enabled() else _NO_MODE
    with mode, modes.aside(), torch._C._DisableFuncTorch():
        yield


class _Pending:
    """Every ``Late`` of this process that has no values: where there is none nobody need look for one."""

    def __init__(self) -> None:
        self._others = 0
        self._others = self.count()

    def count(self) -> int:
        """How many there are: as many as refer to the mark, besides what always does."""
        return sys.getrefcount(_PENDING) - self._others


_PENDING = object()
pending = _Pending()
