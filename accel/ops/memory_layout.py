"""How a tensor of images lies in memory."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Layout(NamedTuple):
    """The memory of each image of a tensor [..., channels, height, width].

    Attributes:
        interleaved: in the order [height, width, channels], else [channels, height, width].
        transposed: with rows and columns exchanged in that order, as after a rotation by 90 degrees.
        whole: if it is a view of some rows and columns, the (height, width) of the tensor that it was cut from.
        expanded: whether all channels are the same memory, as after ``Grayscale(3)``.
    """

    interleaved: bool = False
    transposed: bool = False
    whole: tuple[int, int] | None = None
    expanded: bool = False

    @property
    def usual(self) -> bool:
        """Whether every value has memory of its own, without gaps, row by row."""
        return self in (PLANAR, INTERLEAVED)

    def copied(self) -> Layout:
        """The layout of what torch computes of such a tensor value by value: dense, in the same order."""
        return self if self.usual else Layout(self.interleaved, self.transposed)


PLANAR, INTERLEAVED = Layout(), Layout(interleaved=True)


@lru_cache(maxsize=1024)
def strides(lead: tuple[int, ...], shape: tuple[int, int, int], layout: Layout) -> tuple[int, ...]:
    """The strides of a tensor [*lead, channels, height, width] whose images lie one after another in a layout."""
    channels, height, width = shape
    rows, columns = layout.whole or (height, width)
    step = rows * columns
    pixel = channels if layout.interleaved else 1
    within = [pixel, rows * pixel] if layout.transposed else [columns * pixel, pixel]
    found = [1 if layout.interleaved else 0 if layout.expanded else step, *within]
    if not layout.expanded:
        step *= channels
    for length in reversed(lead):
        found.insert(0, step)
        step *= length
    return tuple(found)
