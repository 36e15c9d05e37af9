"""PlacedTensor: values of lazy images in other places: patches, tiles, padded images, concatenations of unequal ones.

Processors of vision models end with these. Inside ``recording``, functions of torch's that only move values keep a lazy
tensor lazy; one that is again a batch of images becomes a lazy tensor of images. Like torch's, views share their values
with what they are views of, which is computed as a whole when one of them is first used; what is copied (``cat``,
``reshape`` of patches, ...) is computed straight from the images, by ``accel.runtime.placing``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from math import prod
from typing import Any, ClassVar, NamedTuple

import torch

from accel.lazy import shell
from accel.lazy.batch import Whole
from accel.lazy.state import ImageShape, LazyState, Locating
from accel.lazy.tensor_base import LazyTensorBase, records
from accel.ops.memory_layout import PLANAR, Layout, strides
from accel.planning import order
from accel.planning.places import CHANNEL, COLUMN, REPEATED, ROW, Digit, Place
from accel.recipes.recipe import Recipe, Step
from accel.runtime import placing
from accel.runtime.placing import Placed
from accel.system.memory import Allocate

Digits = tuple[tuple[int, int], ...]
"""Loops over one axis of a tensor, the outermost first: how often, and how far each goes in the image (``_CODES``)."""

_ROW, _CHANNEL = 1 << 24, 1 << 48
_CODES = {CHANNEL: _CHANNEL, ROW: _ROW, COLUMN: 1}
"""A position in an image as one number: column + row * _ROW + channel * _CHANNEL."""

_COPIED = object()
"""The progress of a state whose values are no view of another's."""


class Piece(NamedTuple):
    """An image's part of a tensor: a box.

    Attributes:
        recipe: the image. size: the (channels, height, width) of its result.
        begin: the position in the image that is first in the box. start: the box's first index on each axis.
        axes: the loops over the image on each axis.
    """

    recipe: Recipe
    size: ImageShape
    begin: int
    start: tuple[int, ...]
    axes: tuple[Digits, ...]

    def place(self, stride: Sequence[int]) -> Place:
        """Its place in a tensor of these strides."""
        digits = []
        for axis, step in zip(self.axes, stride, strict=True):
            length = _length(axis)
            for size, code in axis:
                length //= size
                kind, by = next(((kind, code // by) for kind, by in _CODES.items() if code >= by), (REPEATED, 0))
                digits.append(Digit(kind, size, by, step * length))
        offset = sum(first * step for first, step in zip(self.start, stride, strict=True))
        return Place(_position(self.begin), offset, tuple(digits))


def _position(code: int) -> ImageShape:
    return code // _CHANNEL, code % _CHANNEL // _ROW, code % _ROW


def _length(axis: Digits) -> int:
    return prod([size for size, _ in axis])


class Content(NamedTuple):
    """What a tensor shows.

    Attributes:
        pieces: what it has of images. like: a tensor of its shape, dtype and strides, without memory.
        fill: the value beside the pieces. images: the class of lazy tensors of images.
    """

    pieces: tuple[Piece, ...]
    like: torch.Tensor
    fill: float
    images: type[LazyTensorBase]

    @property
    def whole(self) -> Piece | None:
        """The piece that is all of it; None: there are several, or something is beside them."""
        return self.pieces[0] if len(self.pieces) == 1 and self.is_full else None

    @property
    def is_full(self) -> bool:
        return sum(prod(map(_length, piece.axes)) for piece in self.pieces) == self.like.numel()


class PlacedState(LazyState):
    """The state of a ``PlacedTensor``."""

    __slots__ = ("content",)

    def __init__(self, content: Content) -> None:
        recipes = tuple([piece.recipe for piece in content.pieces])
        super().__init__(recipes, (), (1, 1, 1), content.like.dtype)
        self.content, self.progress = content, _COPIED

    @property
    def recordable(self) -> bool:
        return False  # by the functions that record on images

    @property
    def _placed(self) -> list[Placed]:
        stride = self.content.like.stride()
        return [Placed(piece.recipe, piece.size, piece.place(stride)) for piece in self.content.pieces]

    def compute(self, allocate: Allocate) -> torch.Tensor:
        if isinstance(self.progress, Whole):
            return super().compute(allocate)
        with Locating(self), shell.suspended():
            out = self._empty(lambda size: allocate((size,), self.dtype))
            placing.on_host(self._placed, self.selection, out)
            return out

    def computed_on(self, device: torch.device) -> torch.Tensor:
        out = self._empty(lambda size: torch.empty(size, dtype=self.dtype, device=device))
        placing.on_device(self._placed, device, out)
        return out

    def _empty(self, allocate: Callable[[int], torch.Tensor]) -> torch.Tensor:
        like = self.content.like
        size = 1 + sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
        out = allocate(size)
        return (out if self.content.is_full else out.fill_(self.content.fill)).as_strided(like.shape, like.stride())


class PlacedTensor(LazyTensorBase):
    """A ``torch.Tensor`` on the CPU of any shape, whose values are those of lazy images, and are not computed yet."""

    is_placed: ClassVar[bool] = True


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
def recording() -> Iterator[None]:
    """Keep tensors lazy in this thread, inside the block, when their values are moved."""
    before, _recording.on = _recording.on, True
    try:
        yield
    finally:
        _recording.on = before


# -- what functions do to the content; None: it is not known -------------------------------------------------


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
    axes = ((channels, _CHANNEL),), ((height, _ROW),), ((width, 1),)
    starts = product(*map(range, lazy.lead))
    pieces = [
        Piece(recipe, lazy.shape, 0, (*start, 0, 0, 0), (*[()] * len(lazy.lead), *axes))
        for recipe, start in zip(lazy.recipes, starts, strict=True)
    ]
    like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=lazy.dtype, device="meta")
    return Content(tuple(pieces), like, 0, type(tensor))


Moved = Iterable[Piece] | None


def _permuted(content: Content, like: torch.Tensor, function: Any, *args: Any, **kwargs: Any) -> Moved:
    labels = torch.empty_strided((1,) * like.ndim, tuple(range(like.ndim)), device="meta")
    axes = function(labels, *args, **kwargs).stride()
    return [
        piece._replace(start=tuple(map(piece.start.__getitem__, axes)), axes=tuple(map(piece.axes.__getitem__, axes)))
        for piece in content.pieces
    ]


def _unsqueezed(content: Content, like: torch.Tensor, function: Any, dim: int) -> Moved:
    return [_with_axis(piece, dim % like.ndim) for piece in content.pieces]


def _with_axis(piece: Piece, dim: int, start: int = 0) -> Piece:
    starts, axes = piece.start, piece.axes
    return piece._replace(start=(*starts[:dim], start, *starts[dim:]), axes=(*axes[:dim], (), *axes[dim:]))


def _expanded(content: Content, like: torch.Tensor, function: Any, *args: Any) -> Moved:
    if like.ndim != content.like.ndim:
        return None
    sizes = list(zip(content.like.shape, like.shape, strict=True))
    return [
        piece._replace(
            axes=tuple([axis if old == new else ((new, 0),) for axis, (old, new) in zip(piece.axes, sizes, strict=True)])
        )
        for piece in content.pieces
    ]


def _reshaped(content: Content, like: torch.Tensor, function: Any, *args: Any) -> Moved:
    whole = content.whole
    left = [] if whole is None else [digit for axis in whole.axes for digit in axis if digit[0] > 1][::-1]
    axes: list[Digits] = []
    for length in like.shape:
        axis: Digits = ()
        while length > 1:
            size, code = left.pop() if left else (0, 0)
            if size and length % size == 0:
                axis, length = (*axis, (size, code)), length // size
            elif size and size % length == 0:
                left.append((size // length, code))
                axis, length = (*axis, (length, code * (size // length))), 1
            else:
                return None
        axes.append(axis)
    return None if whole is None else [whole._replace(start=(0,) * like.ndim, axes=tuple(axes))]


def _unfolded(content: Content, like: torch.Tensor, function: Any, dimension: int, size: int, step: int) -> Moved:
    whole, dim = content.whole, dimension % content.like.ndim
    if whole is None or step != size or len(whole.axes[dim]) != 1:
        return None
    axes, ((length, code),) = list(whole.axes), whole.axes[dim]
    axes[dim] = ((length // size, code * size),)
    return [whole._replace(start=(*whole.start, 0), axes=(*axes, ((size, code),)))]


def _indexed(content: Content, like: torch.Tensor, function: Any, index: Any) -> Moved:
    indices = index if isinstance(index, tuple) else (index,)
    if not all(each is None or each is ... or type(each) in (int, slice) for each in indices):
        return None
    every = len(content.like.shape) - sum(each is not None and each is not ... for each in indices)
    place = indices.index(...) if ... in indices else len(indices)
    indices = (*indices[:place], *[slice(None)] * every, *indices[place + 1 :])
    pieces: list[Piece] = []
    for piece in content.pieces:
        shown = _shown(piece, content.like.shape, indices)
        if shown is None:
            return None
        pieces += shown
    return pieces


def _shown(piece: Piece, shape: Sequence[int], indices: tuple[Any, ...]) -> Sequence[Piece] | None:
    """What of a piece these indices show: one piece, or none."""
    begin, starts, axes = piece.begin, list[int](), list[Digits]()
    own = iter(zip(shape, piece.start, piece.axes, strict=True))
    for index in indices:
        if index is None:
            starts.append(0)
            axes.append(())
            continue
        size, start, axis = next(own)
        chosen = range(size)[index] if isinstance(index, slice) else range(index % size, index % size + 1)
        first, stop = max(start, chosen.start), min(start + _length(axis), chosen.stop)
        if chosen.step != 1 or not chosen:
            return None
        if first >= stop:
            return ()
        if stop - first < _length(axis):
            if len(axis) > 1 and stop - first > 1:
                return None
            number, left = first - start, _length(axis)
            for count, code in axis:
                left //= count
                begin, number = begin + number // left * code, number % left
            axis = ((stop - first, axis[0][1]),) if stop - first > 1 else ()
        if isinstance(index, slice):
            starts.append(first - chosen.start)
            axes.append(axis)
    return [piece._replace(begin=begin, start=tuple(starts), axes=tuple(axes))]


def _same(content: Content, like: torch.Tensor, function: Any, **kwargs: Any) -> Moved:
    return content.pieces


# -- handlers -----------------------------------------------------------------------------------------------


def moved(move: Callable[..., Moved], function: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of torch's that shows a tensor's values in other places; NotImplemented outside of ``recording``."""
    content = _content(tensor) if _recording.on else None
    if content is None:
        return NotImplemented
    try:
        like = function(content.like, *args, **kwargs)
    except Exception:
        return NotImplemented  # the function itself raises the right error
    if like is content.like:
        return tensor
    pieces = None if like.dtype != content.like.dtype else move(content, like, function, *args, **kwargs)
    if pieces is None:
        return NotImplemented
    is_view = like.untyped_storage()._cdata == content.like.untyped_storage()._cdata
    shown = partial(_call, function, args, kwargs)
    return _settled(content._replace(pieces=tuple(pieces), like=like), tensor if is_view else None, shown)


def _call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensor: torch.Tensor) -> torch.Tensor:
    return function(tensor, *args, **kwargs)  # type: ignore[no-any-return]


def _settled(content: Content, of: LazyTensorBase | None = None, shown: Callable[..., Any] | None = None) -> Any:
    """The tensor with a content, of images if it is a batch of such; ``of``: what it is a view of, by ``shown``."""
    progress, offset = _COPIED, int(content.like.storage_offset())
    if of is not None:
        progress, offset = Whole(of, of.lazy, shown), offset + int(of.storage_offset())
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
    like, pieces = content.like, content.pieces
    lead, shape = tuple(like.shape[:-3]), tuple(like.shape[-3:])
    if like.ndim < 3 or not pieces or len(pieces) != prod(lead):
        return None
    axes = [((size, code),) if size > 1 else () for size, code in zip(shape, (_CHANNEL, _ROW, 1), strict=True)]
    recipes = []
    for piece, start in zip(pieces, product(*map(range, lead)), strict=True):
        channel, row, column = _position(piece.begin)
        own = [tuple([digit for digit in axis if digit[0] > 1]) for axis in piece.axes]
        if own != [*[()] * len(lead), *axes] or piece.start != (*start, 0, 0, 0) or channel or shape[0] != piece.size[0]:
            return None
        crop: Step = ("crop", (row, column, *shape[1:]))
        if piece.size[1:] == shape[1:]:
            recipes.append(piece.recipe)
        elif order.may_lead((crop,), piece.recipe.steps, piece.size[1:]):
            recipes.append(Recipe(piece.recipe.source, (*piece.recipe.steps, crop)))
        else:
            return None
    for layout in (PLANAR, Layout(interleaved=True), Layout(whole=pieces[0].size[1:])):
        steps = zip(strides(lead, shape, layout), like.stride(), like.shape, strict=True)  # type: ignore[arg-type]
        if all(step == own or size == 1 for step, own, size in steps):
            return content.images.of(tuple(recipes), lead, shape, like.dtype, layout, offset=offset)  # type: ignore[arg-type]
    return None


def unbind(tensor: LazyTensorBase, dim: int = 0) -> Any:
    """``torch.unbind`` along the first axis; else NotImplemented."""
    if dim != 0 or not _recording.on:
        return NotImplemented
    parts = [moved(_indexed, torch.Tensor.__getitem__, tensor, number) for number in range(len(tensor))]
    return NotImplemented if any(part is NotImplemented for part in parts) else tuple(parts)


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """``torch.cat``."""
    return _joined(torch.cat, tensors, dim)


def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """``torch.stack``."""
    return _joined(torch.stack, tensors, dim)


def _joined(function: Any, tensors: Sequence[Any], dim: int) -> Any:
    contents = [_content(tensor) for tensor in tensors] if _recording.on else []
    known = [content for content in contents if content is not None]
    if not known or len(known) < len(contents):
        return NotImplemented
    first, pieces, start = known[0], list[Piece](), 0
    fills = {content.fill for content in known if not content.is_full}
    alike = len({(tensor.lazy.selection, tensor.lazy.dtype) for tensor in tensors}) == 1
    if not alike or len(fills) > 1:
        return NotImplemented
    try:
        like = function([content.like for content in known], dim)
    except Exception:
        return NotImplemented  # the function itself raises the right error
    dim %= like.ndim
    for number, content in enumerate(known):
        if function is torch.stack:
            pieces += [_with_axis(piece, dim, number) for piece in content.pieces]
        else:
            pieces += [_shifted(piece, dim, start) for piece in content.pieces]
            start += content.like.shape[dim]
    return _settled(Content(tuple(pieces), like, fills.pop() if fills else 0, first.images))


def _shifted(piece: Piece, dim: int, by: int) -> Piece:
    return piece._replace(start=(*piece.start[:dim], piece.start[dim] + by, *piece.start[dim + 1 :]))


def pad(tensor: LazyTensorBase, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """``torch.nn.functional.pad`` by a constant."""
    content = _content(tensor) if _recording.on else None
    if content is None or mode != "constant" or any(type(by) is not int or by < 0 for by in pad):
        return NotImplemented
    fill = float(value or 0)
    if not content.is_full and content.fill != fill:
        return NotImplemented
    try:
        like = torch.nn.functional.pad(content.like, list(pad), mode, value)
    except Exception:
        return NotImplemented
    pieces = content.pieces
    for number, by in enumerate(pad[::2]):
        pieces = tuple([_shifted(piece, like.ndim - 1 - number, by) for piece in pieces])
    return _settled(content._replace(pieces=pieces, like=like, fill=fill))


def cast(tensor: LazyTensorBase, dtype: torch.dtype) -> Any:
    """A placed tensor of another dtype."""
    content = tensor.lazy.content  # type: ignore[attr-defined]
    step: Step = ("to", (dtype,))
    pieces = [
        piece._replace(recipe=Recipe(piece.recipe.source, (*piece.recipe.steps, step))) for piece in content.pieces
    ]
    return _made(content._replace(pieces=tuple(pieces), like=content.like.to(dtype)))


def _handlers() -> dict[Any, Callable[..., Any]]:
    of = torch.Tensor
    moves: dict[Callable[..., Moved], tuple[Any, ...]] = {
        _permuted: (of.permute, torch.permute, of.transpose, torch.transpose, of.movedim, torch.movedim),
        _unsqueezed: (of.unsqueeze, torch.unsqueeze),
        _expanded: (of.expand,),
        _reshaped: (of.reshape, torch.reshape, of.view, of.flatten, torch.flatten),
        _unfolded: (of.unfold,),
        _indexed: (of.__getitem__,),
        _same: (of.contiguous,),
    }
    return {function: partial(moved, move, function) for move, functions in moves.items() for function in functions}


HANDLERS: dict[Any, Callable[..., Any]] = {
    **_handlers(),
    **dict.fromkeys((torch.unbind, torch.Tensor.unbind), unbind),
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), cat),
    torch.stack: stack,
    torch.nn.functional.pad: pad,
}
"""What keeps a tensor lazy inside ``recording``; handlers of lazy images come first where they have one."""
