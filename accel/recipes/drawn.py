"""Images drawn one by one, which become rows when they are stacked and recipes when they are inspected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, overload

import numpy as np

from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source, Step
from accel.recipes.rows import Rows, Structure, joined, separated, shifted
from accel.recipes.sources import Files


class Drawn(Protocol):
    """The random draws for one image, and the steps that follow from them.

    Attributes:
        pieces: images with equal pieces have the same structure. row: this image's numbers.
    """

    pieces: list[Any]
    row: list[int]

    def steps(self) -> tuple[Step, ...]:
        """The steps of this image."""

    def structure(self) -> Structure | None:
        """The structure of images with these pieces; None if each image needs steps of its own."""


class Row(Sequence[Recipe]):
    """A sequence of one recipe, made on access from a source, the steps before the draws, and the draws."""

    __slots__ = ("before", "drawn", "source")

    def __init__(self, source: Source, before: tuple[Step, ...], drawn: Drawn) -> None:
        self.source, self.before, self.drawn = source, before, drawn

    @property
    def selection(self) -> Selection:
        return self.source.selection

    def __len__(self) -> int:
        return 1

    @overload
    def __getitem__(self, place: int) -> Recipe: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Recipe]: ...
    def __getitem__(self, place: int | slice) -> Recipe | Sequence[Recipe]:
        return (Recipe(self.source, self.before + self.drawn.steps()),)[place]


def gathered(parts: Sequence[Sequence[Recipe]]) -> Sequence[Recipe]:
    """Concatenate recipes: as rows if they have a structure in common."""
    if all(type(part) is Row for part in parts):
        recipes = _rows(parts) or joined(parts)  # type: ignore[arg-type]
    else:
        recipes = joined(parts)
        recipes = Rows.of(recipes) or recipes
    if isinstance(recipes, Rows) and isinstance(recipes.sources, tuple):
        recipes.sources = Files.of(recipes.sources) or recipes.sources
    return recipes


def _rows(images: Sequence[Row]) -> Rows | None:
    """Images drawn one by one as rows; None if they have no structure in common."""
    first = images[0].drawn
    if any(image.drawn.pieces != first.pieces for image in images):
        return None
    structure = first.structure()
    if structure is None:
        return None
    count, columns = len(images), structure.columns
    numbers = np.array([image.drawn.row for image in images], np.int64).reshape(count, columns)
    if any(image.before for image in images):
        known: dict[tuple[Step, ...], int] = {}  # the steps before the draws take few different values
        try:
            which = [known.setdefault(image.before, len(known)) for image in images]
            found = separated(list(known))
        except (TypeError, RuntimeError, ValueError):  # parameters that have no hash, or cannot be compared
            return None
        if found is None:
            return None
        structure = Structure.of(*[shifted(form, columns) for form in found[0].forms], *structure.forms)
        numbers = np.concatenate([numbers, found[1][which]], 1)
    return Rows([image.source for image in images], structure, numbers)
