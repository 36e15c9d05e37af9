"""Chains of DALI operators for one image, with their fixed arguments and the numbers that they are fed."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from accel.planning.stages import Box

Numbers = tuple[float, ...]


class Operator(NamedTuple):
    """An operator: its name in ``operators``, its fixed arguments, and the numbers fed for every image."""

    name: str
    static: tuple[Any, ...]
    fed: tuple[Numbers, ...]


class Structure(NamedTuple):
    """The fixed part of a pipeline: its kind of input, the channels of the uint8 pixels, and its operators."""

    source: Literal["jpeg", "pixels"]
    channels: int
    operators: tuple[tuple[str, tuple[Any, ...]], ...]

    @property
    def names(self) -> list[str]:
        """The names of all operators, including the decoder."""
        first = ["decoders.image_slice"] if self.source == "jpeg" else []
        return first + [name for name, _ in self.operators]


class OperatorChain:
    """A growing chain of operators on pixels [height, width, channels].

    Attributes:
        size, channels: of the chain's output so far.
    """

    @classmethod
    def on_region(cls, box: Box, picture_width: int, channels: int) -> tuple[Box, OperatorChain]:
        """The box to decode for a region of a JPEG file, and a chain that crops the region from it."""
        wider = wide_enough(box, picture_width)
        chain = cls(wider[2:], channels)
        chain.crop((0, box[1] - wider[1]), box[2:])
        return wider, chain

    def __init__(self, size: tuple[int, int], channels: int) -> None:
        self.size = size
        self.channels = channels
        self.operators: tuple[Operator, ...] = ()

    def add(
        self,
        name: str,
        static: tuple[Any, ...],
        fed: tuple[Numbers, ...],
        size: tuple[int, int] | None = None,
        channels: int | None = None,
    ) -> None:
        """Add an operator; ``size``, ``channels``: of its output, by default unchanged."""
        self.operators += (Operator(name, static, fed),)
        self.size = size or self.size
        self.channels = channels or self.channels

    def crop(self, corner: tuple[int, ...], size: tuple[int, ...]) -> None:
        """Add a crop, unless it keeps everything."""
        if tuple(size) != self.size:
            self.add("crop", (), (corner, size), (size[0], size[1]))

    @property
    def structure(self) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        """The fixed parts of the operators."""
        return tuple([each[:2] for each in self.operators])

    @property
    def fed(self) -> tuple[Numbers, ...]:
        """The numbers fed to the operators."""
        return tuple([numbers for each in self.operators for numbers in each.fed])

    def take_mirror(self) -> int:
        """Remove a horizontal flip at the end, for the next operator to do; return 1 if there was one, else 0."""
        if self.operators and self.operators[-1] == Operator("flip", (), ((1,), (0,))):
            self.operators = self.operators[:-1]
            return 1
        return 0


def wide_enough(box: Box, picture_width: int) -> Box:
    """The region to ask for from decoders that use libjpeg-turbo: the box, with more columns if it is narrow.

    If a component has a single sample across the region, jpeg_crop_scanline (jdapistd.c) chooses anew how all of them
    are upsampled, and then repeats samples that it should interpolate. More columns than the largest sampling factor
    (4), or all of the picture's, avoid that.
    """
    top, left, height, width = box
    columns = min(max(width, _NARROWEST), picture_width)
    return top, min(left, picture_width - columns), height, columns


_NARROWEST = 5
