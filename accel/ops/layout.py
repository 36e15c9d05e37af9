"""How a tensor of images lies in memory."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Layout(NamedTuple):
    """The memory of each image of a tensor [..., channels, height, width].

    Attributes:
        interleaved: in the order [height, width, channels], else [channels, height, width].
        whole: if it is a view of some rows and columns, the (height, width) of the tensor that it was cut from.
        expanded: whether all channels are the same memory, as after ``Grayscale(3)``.
    """

    interleaved: bool = False
    whole: tuple[int, int] | None = None
    expanded: bool = False

    @property
    def dense(self) -> bool:
        """Whether every value has memory of its own, without gaps."""
        return self.whole is None and not self.expanded


PLANAR, INTERLEAVED = Layout(), Layout(interleaved=True)


@lru_cache(maxsize=1024)
def strides(lead: tuple[int, ...], shape: tuple[int, int, int], layout: Layout) -> tuple[int, ...]:
    """The strides of a tensor [*lead, channels, height, width] whose images lie one after another in a layout."""
    channels, height, width = shape
    rows, columns = layout.whole or (height, width)
    step = rows * columns
    found = [0 if layout.expanded else step, columns, 1]
    if layout.interleaved:
        found = [1, columns * channels, channels]
    if not layout.expanded:
        step *= channels
    for length in reversed(lead):
        found.insert(0, step)
        step *= length
    return tuple(found)
