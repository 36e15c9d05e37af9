"""PlacedTensor: values of lazy images in other places: patches, tiles, padded images, concatenations of unequal ones.

Processors of vision models end with these. Inside ``recording``, functions of torch's that only move values keep a lazy
tensor lazy; one that is again a batch of images becomes a lazy tensor of images. Like torch's, views share their values
with what they are views of, which is computed as a whole when one of them is first used; what is copied (``cat``,
``reshape`` of patches, ...) is computed straight from the images, by ``accel.runtime.placing``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product, takewhile
from math import prod
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode

from accel.lazy import pieces, shell
from accel.lazy.batch import Whole
from accel.lazy.pieces import CHANNEL_CODE, ROW_CODE, Content, Moved, Piece
from accel.lazy.state import LazyState, Locating
from accel.lazy.tensor_base import LazyTensorBase, records, takes
from accel.ops.memory_layout import PLANAR, Layout, strides
from accel.planning import order
from accel.planning.places import extent
from accel.processes import switch
from accel.processes.sending import raised_by_receiver
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Step
from accel.runtime import placing
from accel.runtime.placing import Placed
from accel.system import memory
from accel.system.memory import Allocate

_COPIED = object()
"""The progress of a state whose values are no view of another's."""


class PlacedState(LazyState):
    """The state of a ``PlacedTensor``."""

    __slots__ = ("content", "taken")

    content: Content
    taken: set[tuple[int, ...]]  # the first indices of what was put in (``put``)

    def __init__(self, content: Content) -> None:
        super().__init__((), (), (1, 1, 1), content.like.dtype)
        self.show(content)
        self.progress, self.taken = _COPIED, set()

    def show(self, content: Content) -> None:
        """Have other content."""
        self.content, self.recipes = content, tuple([piece.recipe for piece in content.pieces])
        places = tuple([piece[2:] for piece in content.pieces])
        self.after = (("placed", (tuple(content.like.shape), places)),)  # for those who compare what was recorded

    @property
    def selection(self) -> Selection:
        return super().selection if self.recipes else switch.current()

    @property
    def recordable(self) -> bool:
        return False

    @property
    def unseen(self) -> bool:
        return self.progress is _COPIED or super().unseen

    @property
    def _placed(self) -> list[Placed]:
        stride = self.content.like.stride()
        return [Placed(piece.recipe, piece.size, piece.place(stride)) for piece in self.content.pieces]

    def compute(self, allocate: Allocate) -> torch.Tensor:
        if isinstance(self.progress, Whole):
            return super().compute(allocate)
        with Locating(self), shell.suspended():
            out = self._empty(lambda size: allocate((size,), self.dtype))
            if self.recipes:
                placing.on_host(self._placed, self.selection, out)
            return out

    def computed_on(self, device: torch.device) -> torch.Tensor:
        out = self._empty(lambda size: torch.empty(size, dtype=self.dtype, device=device))
        placing.on_device(self._placed, device, out)
        return out

    def _empty(self, allocate: Callable[[int], torch.Tensor]) -> torch.Tensor:
        like = self.content.like
        out = allocate(extent(like))
        return (out if self.content.is_full else out.fill_(self.content.fill)).as_strided(like.shape, like.stride())


class PlacedTensor(LazyTensorBase):
    """A ``torch.Tensor`` on the CPU of any shape, whose values are those of lazy images, and are not computed yet."""

    is_placed: ClassVar[bool] = True


@raised_by_receiver
def _send(tensor: LazyTensorBase) -> Any:
    return _received, (LazyTensorBase.materialize(tensor),)


def _received(values: torch.Tensor) -> torch.Tensor:
    return values


ForkingPickler.register(PlacedTensor, _send)


def _made(content: Content, progress: Any = _COPIED, offset: int = 0) -> LazyTensorBase:
    like = content.like
    tensor = shell.make(PlacedTensor, like.shape, like.stride(), like.dtype, offset)
    tensor.lazy = PlacedState(content)
    tensor.lazy.progress = progress
    return tensor


class _Recording(threading.local):
    on = False


_recording = _Recording()


@contextmanager
def recording(*, zeros: bool = False) -> Iterator[None]:
    """Keep tensors lazy in this thread, inside the block, when their values are moved.

    ``zeros``: floats that ``torch.zeros`` makes for images to be put in, with more than three axes, are lazy as well.
    """
    before, _recording.on = _recording.on, True
    try:
        with _Zeros() if zeros else nullcontext():
            yield
    finally:
        _recording.on = before


class _Zeros(TorchFunctionMode):
    """``torch.zeros`` makes lazy tensors for images; others are plain, in memory that is used again."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func is not torch.zeros or kwargs.keys() - {"size", "dtype", "device"}:
            return func(*args, **kwargs)
        device = kwargs.get("device")
        if torch.device(torch.get_default_device() if device is None else device).type != "cpu":
            return func(*args, **kwargs)
        like = torch.zeros(*args, **{**kwargs, "device": "meta"})
        if like.ndim > 3 and like.is_floating_point() and like.numel():
            return _made(Content((), like, 0, LazyTensorBase))
        return memory.results.empty(like.shape, like.dtype).zero_()


def _content(tensor: Any) -> Content | None:
    """What a lazy tensor shows; None if others than its images decide that."""
    if not records(tensor):
        return None
    lazy = tensor.lazy
    if isinstance(lazy, PlacedState):
        return lazy.content
    if lazy.after or lazy.member is not None or lazy.part is not None or lazy.layout.expanded:
        return None
    channels, height, width = lazy.shape
    axes = ((channels, CHANNEL_CODE),), ((height, ROW_CODE),), ((width, 1),)
    starts = product(*map(range, lazy.lead))
    images = [
        Piece(recipe, lazy.shape, 0, (*start, 0, 0, 0), (*[()] * len(lazy.lead), *axes))
        for recipe, start in zip(lazy.recipes, starts, strict=True)
    ]
    like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=lazy.dtype, device="meta")
    return Content(tuple(images), like, 0, type(tensor))


# -- handlers -----------------------------------------------------------------------------------------------


def moved(move: Callable[..., Moved], function: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of torch's that shows a tensor's values in other places; NotImplemented outside of ``recording``."""
    content = _content(tensor) if _recording.on and takes(move, kwargs) else None
    if content is None:
        return NotImplemented
    try:
        like = function(content.like, *args, **kwargs)
    except Exception:
        return NotImplemented  # the function itself raises the right error
    if like is content.like:
        return tensor
    shows = None if like.dtype != content.like.dtype else move(content, like, function, *args, **kwargs)
    if shows is None:
        return NotImplemented
    shown = content._replace(pieces=tuple(shows), like=like)
    if like.untyped_storage()._cdata != content.like.untyped_storage()._cdata:
        return _settled(shown)
    begin = int(tensor.storage_offset()) - int(content.like.storage_offset())
    return _settled(shown, tensor, partial(_call, function, args, kwargs), begin)


def _call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensor: torch.Tensor) -> torch.Tensor:
    return function(tensor, *args, **kwargs)  # type: ignore[no-any-return]


def _settled(
    content: Content, of: LazyTensorBase | None = None, shown: Callable[..., Any] | None = None, begin: int = 0
) -> Any:
    """The tensor with a content, of images if it is a batch of such; ``of``: what it is a view of, by ``shown``.

    ``begin``: where the memory of ``content.like`` begins in that of ``of``.
    """
    progress, offset = _COPIED, begin + int(content.like.storage_offset())
    if of is not None:
        progress = Whole(of, of.lazy, shown)
        of.lazy.aliased = True
    tensor = _as_images(content, offset)
    if tensor is None:
        tensor = _made(content, progress, offset)
    elif of is not None:
        tensor.lazy.progress = progress
    tensor.lazy.aliased = of is not None
    return tensor


def _as_images(content: Content, offset: int) -> LazyTensorBase | None:
    """A lazy tensor of images; None if the content is not that, or its images would not lie so in memory."""
    like, shows = content.like, content.pieces
    lead, shape = tuple(like.shape[:-3]), tuple(like.shape[-3:])
    if like.ndim < 3 or not shows or len(shows) != prod(lead):
        return None
    axes = [((size, code),) if size > 1 else () for size, code in zip(shape, (CHANNEL_CODE, ROW_CODE, 1), strict=True)]
    recipes = []
    for piece, start in zip(shows, product(*map(range, lead)), strict=True):
        channel, row, column = pieces.position(piece.begin)
        own = [tuple([digit for digit in axis if digit[0] > 1]) for axis in piece.axes]
        placed = own == [*[()] * len(lead), *axes] and piece.start == (*start, 0, 0, 0)
        if not placed or channel or shape[0] != piece.size[0]:
            return None
        crop: Step = ("crop", (row, column, *shape[1:]))
        if piece.size[1:] == shape[1:]:
            recipes.append(piece.recipe)
        elif order.may_lead((crop,), piece.recipe.steps, piece.size[1:]):
            recipes.append(Recipe(piece.recipe.source, (*piece.recipe.steps, crop)))
        else:
            return None
    for layout in (PLANAR, Layout(interleaved=True), Layout(whole=shows[0].size[1:])):
        steps = zip(strides(lead, shape, layout), like.stride(), like.shape, strict=True)
        if all(step == own or size == 1 for step, own, size in steps):
            return content.images.of(tuple(recipes), lead, shape, like.dtype, layout, offset=offset)  # type: ignore[arg-type]
    return None


def unbind(tensor: LazyTensorBase, dim: int = 0) -> Any:
    """``torch.unbind`` along the first axis; else NotImplemented."""
    if dim != 0 or not _recording.on:
        return NotImplemented
    parts = [moved(pieces.indexed, torch.Tensor.__getitem__, tensor, number) for number in range(len(tensor))]
    return NotImplemented if any(part is NotImplemented for part in parts) else tuple(parts)


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """``torch.cat``."""
    return _joined(torch.cat, tensors, dim)


def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """``torch.stack``."""
    return _joined(torch.stack, tensors, dim)


def stack_tiles(tensors: Sequence[Any], dim: int = 0) -> Any:
    """``torch.stack`` of several parts of one image, which is then computed as a whole; else NotImplemented."""
    sources = [id(recipe.source) for tensor in tensors for recipe in tensor.lazy.recipes] if _recording.on else []
    return stack(tensors, dim) if len(set(sources)) < len(sources) else NotImplemented


def _joined(function: Any, tensors: Sequence[Any], dim: int) -> Any:
    contents = [_content(tensor) for tensor in tensors] if _recording.on else []
    known = [content for content in contents if content is not None]
    if not known or len(known) < len(contents):
        return NotImplemented
    if len({(tensor.lazy.selection, tensor.lazy.dtype) for tensor in tensors}) > 1:
        return NotImplemented
    try:
        like = function([content.like for content in known], dim)
    except Exception:
        return NotImplemented  # the function itself raises the right error
    content = pieces.joined(known, like, dim, function is torch.stack)
    return NotImplemented if content is None else _settled(content)


def pad(tensor: LazyTensorBase, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """``torch.nn.functional.pad`` by a constant."""
    content = _content(tensor) if _recording.on else None
    if content is None or mode != "constant" or any(type(by) is not int or by < 0 for by in pad):
        return NotImplemented
    try:
        like = torch.nn.functional.pad(content.like, list(pad), mode, value)
        fill = torch.full((), float(value or 0), dtype=like.dtype, device="cpu").item()  # as that dtype has it
    except Exception:
        return NotImplemented  # the function itself raises the right error
    content = pieces.padded(content, like, pad[::2], fill)
    return NotImplemented if content is None else _settled(content)


def put(tensor: LazyTensorBase, index: Any, value: Any) -> Any:
    """``tensor[i, j, ...] = value`` for other ints each time; else NotImplemented."""
    state, given = tensor.lazy, _content(value) if _recording.on else None
    indices = pieces.spelled(index, tensor.ndim)
    if given is None or indices is None or None in indices or not given.is_full:
        return NotImplemented
    if any(isinstance(each, slice) and each.step not in (None, 1) for each in indices):
        return NotImplemented
    if not isinstance(state, PlacedState) or state.progress is not _COPIED or state.aliased:
        return NotImplemented
    if state.recipes and not state.taken:  # images are in it that were not put there
        return NotImplemented
    try:
        room = state.content.like[index]
    except Exception:
        return NotImplemented  # the function itself raises the right error
    ints = takewhile(lambda each: type(each) is int, indices)
    key = tuple([each % size for each, size in zip(ints, tensor.shape, strict=False)])
    alike = (room.shape, room.dtype) == (given.like.shape, given.like.dtype)
    new = key not in state.taken and {len(key)} >= {len(other) for other in state.taken}
    if not alike or not new or state.selection != value.lazy.selection:
        return NotImplemented
    state.taken.add(key)
    state.show(pieces.put(state.content, given, indices))
    return None


def like(function: Any, tensor: LazyTensorBase, **kwargs: Any) -> Any:
    """``torch.zeros_like`` and such, which need no values."""
    blank = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return function(blank, **kwargs)


def cast(tensor: LazyTensorBase, dtype: torch.dtype) -> Any:
    """A placed tensor of another dtype."""
    content = tensor.lazy.content  # type: ignore[attr-defined]
    step: Step = ("to", (dtype,))
    shows = [
        piece._replace(recipe=Recipe(piece.recipe.source, (*piece.recipe.steps, step))) for piece in content.pieces
    ]
    fill = torch.full((), content.fill, dtype=tensor.dtype, device="cpu").to(dtype).item()
    return _made(content._replace(pieces=tuple(shows), like=content.like.to(dtype), fill=fill))


def _handlers() -> dict[Any, Callable[..., Any]]:
    of = torch.Tensor
    moves: dict[Callable[..., Moved], tuple[Any, ...]] = {
        pieces.permuted: (of.permute, torch.permute, of.transpose, torch.transpose, of.movedim, torch.movedim),
        pieces.unsqueezed: (of.unsqueeze, torch.unsqueeze),
        pieces.expanded: (of.expand,),
        pieces.reshaped: (of.reshape, torch.reshape, of.view, of.flatten, torch.flatten),
        pieces.unfolded: (of.unfold,),
        pieces.indexed: (of.__getitem__,),
        pieces.same: (of.contiguous,),
    }
    return {function: partial(moved, move, function) for move, functions in moves.items() for function in functions}


HANDLERS: dict[Any, Callable[..., Any]] = {
    **_handlers(),
    **dict.fromkeys((torch.unbind, torch.Tensor.unbind), unbind),
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), cat),
    torch.stack: stack,
    torch.nn.functional.pad: pad,
    torch.Tensor.__setitem__: put,
    **{function: partial(like, function) for function in (torch.zeros_like, torch.ones_like)},
}
"""What keeps a tensor lazy inside ``recording``; handlers of lazy images come first where they have one."""
