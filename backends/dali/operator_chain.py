"""DALI operators for one image, one after another, with what is fixed of them and the numbers they are fed."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from accel.codec.engines import wide_enough
from accel.planning.stages import Box

Numbers = tuple[float, ...]


class Operator(NamedTuple):
    """An operator: its name in ``operators``, what is fixed in the pipeline, and what is fed for every image."""

    name: str
    static: tuple[Any, ...]
    fed: tuple[Numbers, ...]


class Structure(NamedTuple):
    """All that is fixed of a pipeline: its input, uint8 pixels of so many channels, and its operators."""

    source: Literal["jpeg", "pixels"]
    channels: int
    operators: tuple[tuple[str, tuple[Any, ...]], ...]

    @property
    def names(self) -> list[str]:
        """Names of what runs."""
        first = ["decoders.image_slice"] if self.source == "jpeg" else []
        return first + [name for name, _ in self.operators]


class OperatorChain:
    """Operators on pixels [height, width, channels], as they are added.

    Attributes:
        size, channels: of the pixels that come out so far.
    """

    @classmethod
    def on_region(cls, box: Box, picture_width: int, channels: int) -> tuple[Box, OperatorChain]:
        """The box to decode for a region of a JPEG file, and the chain that makes the region of it."""
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
        """Add an operator that gives so many pixels (by default as many as there were)."""
        self.operators += (Operator(name, static, fed),)
        self.size = size or self.size
        self.channels = channels or self.channels

    def crop(self, corner: tuple[int, ...], size: tuple[int, ...]) -> None:
        """Keep a part, unless that is all."""
        if tuple(size) != self.size:
            self.add("crop", (), (corner, size), (size[0], size[1]))

    @property
    def structure(self) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        """The fixed part of its operators."""
        return tuple([each[:2] for each in self.operators])

    @property
    def fed(self) -> tuple[Numbers, ...]:
        """The numbers fed to them."""
        return tuple([numbers for each in self.operators for numbers in each.fed])

    def take_mirror(self) -> int:
        """Whether the last operator mirrors, which is left to the one that comes next."""
        if self.operators and self.operators[-1] == Operator("flip", (), ((1,), (0,))):
            self.operators = self.operators[:-1]
            return 1
        return 0
