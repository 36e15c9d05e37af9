"""What a tensor shows of lazy images whose values are in other places: boxes of it, each with loops over an image.

Functions of torch's that only move values make other boxes of these, or None where boxes cannot express the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from accel.lazy.state import ImageShape
from accel.lazy.tensor_base import LazyTensorBase
from accel.planning.places import CHANNEL, COLUMN, REPEATED, ROW, Digit, Place
from accel.recipes.recipe import Recipe

Digits = tuple[tuple[int, int], ...]
"""Loops over one axis of a tensor, the outermost first: how often, and how far each goes in the image (``_CODES``)."""

ROW_CODE, CHANNEL_CODE = 1 << 24, 1 << 48
_CODES = {CHANNEL: CHANNEL_CODE, ROW: ROW_CODE, COLUMN: 1}
"""A position in an image as one number: column + row * ROW_CODE + channel * CHANNEL_CODE."""


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
        return Place(position(self.begin), offset, tuple(digits))


def position(code: int) -> ImageShape:
    return code // CHANNEL_CODE, code % CHANNEL_CODE // ROW_CODE, code % ROW_CODE


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


# -- what functions do to the pieces; None: it is not known --------------------------------------------------


Moved = Iterable[Piece] | None


def permuted(content: Content, like: torch.Tensor, function: Any, *args: Any, **kwargs: Any) -> Moved:
    labels = torch.empty_strided((1,) * like.ndim, tuple(range(like.ndim)), device="meta")
    axes = function(labels, *args, **kwargs).stride()
    return [
        piece._replace(start=tuple(map(piece.start.__getitem__, axes)), axes=tuple(map(piece.axes.__getitem__, axes)))
        for piece in content.pieces
    ]


def unsqueezed(content: Content, like: torch.Tensor, function: Any, dim: int) -> Moved:
    return [_with_axis(piece, dim % like.ndim) for piece in content.pieces]


def _with_axis(piece: Piece, dim: int, start: int = 0) -> Piece:
    starts, axes = piece.start, piece.axes
    return piece._replace(start=(*starts[:dim], start, *starts[dim:]), axes=(*axes[:dim], (), *axes[dim:]))


def expanded(content: Content, like: torch.Tensor, function: Any, *args: Any, **kwargs: Any) -> Moved:
    if like.ndim != content.like.ndim:
        return None
    grown = [() if old == new else ((new, 0),) for old, new in zip(content.like.shape, like.shape, strict=True)]
    return [
        piece._replace(axes=tuple([more or axis for axis, more in zip(piece.axes, grown, strict=True)]))
        for piece in content.pieces
    ]


def reshaped(content: Content, like: torch.Tensor, function: Any, *args: Any, **kwargs: Any) -> Moved:
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


def unfolded(content: Content, like: torch.Tensor, function: Any, dimension: int, size: int, step: int) -> Moved:
    whole, dim = content.whole, dimension % content.like.ndim
    if whole is None or step != size or len(whole.axes[dim]) != 1:
        return None
    axes, ((length, code),) = list(whole.axes), whole.axes[dim]
    axes[dim] = ((length // size, code * size),)
    return [whole._replace(start=(*whole.start, 0), axes=(*axes, ((size, code),)))]


def indexed(content: Content, like: torch.Tensor, function: Any, index: Any) -> Moved:
    indices = spelled(index, content.like.ndim)
    shown = [] if indices is None else [_shown(piece, content.like.shape, indices) for piece in content.pieces]
    known = [pieces for pieces in shown if pieces is not None]
    return None if indices is None or len(known) < len(shown) else [piece for pieces in known for piece in pieces]


def spelled(index: Any, ndim: int) -> tuple[Any, ...] | None:
    """An index as one of an int, a slice or None for each axis; None: it is of another kind."""
    indices = index if isinstance(index, tuple) else (index,)
    if not all(each is None or each is ... or type(each) in (int, slice) for each in indices):
        return None
    every = ndim - sum(each is not None and each is not ... for each in indices)
    place = indices.index(...) if ... in indices else len(indices)
    return (*indices[:place], *[slice(None)] * every, *indices[place + 1 :])


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


def same(content: Content, like: torch.Tensor, function: Any, **kwargs: Any) -> Moved:
    return content.pieces


# -- several contents as one ---------------------------------------------------------------------------------


def joined(contents: Sequence[Content], like: torch.Tensor, dim: int, stacked: bool) -> Content | None:
    """Contents one after another on an axis, which is new if they are ``stacked``; None: other values lie beside."""
    pieces, start = list[Piece](), 0
    fills = {content.fill for content in contents if not content.is_full}
    for number, content in enumerate(contents):
        if stacked:
            pieces += [_with_axis(piece, dim % like.ndim, number) for piece in content.pieces]
        else:
            pieces += [_shifted(piece, dim % like.ndim, start) for piece in content.pieces]
            start += content.like.shape[dim]
    if len(fills) > 1:
        return None
    return Content(tuple(pieces), like, fills.pop() if fills else 0, contents[0].images)


def padded(content: Content, like: torch.Tensor, before: Sequence[int], fill: float) -> Content | None:
    """A content with so many values before it on each axis, the last one first."""
    if not content.is_full and content.fill != fill:
        return None
    pieces = content.pieces
    for number, by in enumerate(before):
        pieces = tuple([_shifted(piece, like.ndim - 1 - number, by) for piece in pieces])
    return content._replace(pieces=pieces, like=like, fill=fill)


def _shifted(piece: Piece, dim: int, by: int) -> Piece:
    return piece._replace(start=(*piece.start[:dim], piece.start[dim] + by, *piece.start[dim + 1 :]))


def put(content: Content, given: Content, indices: Sequence[Any]) -> Content:
    """A content with another put in it, at ints and slices (one for each axis)."""
    pieces = list(content.pieces)
    for piece in given.pieces:
        starts, axes, own = list[int](), list[Digits](), iter(zip(piece.start, piece.axes, strict=True))
        for size, index in zip(content.like.shape, indices, strict=True):
            start, axis = next(own) if isinstance(index, slice) else (0, ())
            starts.append(start + (range(size)[index].start if isinstance(index, slice) else index % size))
            axes.append(axis)
        pieces.append(piece._replace(start=tuple(starts), axes=tuple(axes)))
    return content._replace(pieces=tuple(pieces), images=given.images)
