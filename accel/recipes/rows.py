"""Recipes of one structure: the same steps on many sources, with columns of numbers where parameters differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, overload

import numpy as np
import torch

from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source, Step
from accel.recipes.sources import Numbers as Numbers
from accel.recipes.sources import Pictures as Pictures
from accel.recipes.sources import Sizes, Sources, sizes_of, table_of

Steps = tuple[Step, ...]
DRAWN = frozenset({"convert", "hflip", "vflip"})
"""Steps that some images of a structure may lack."""


@dataclass(frozen=True)
class Slot:
    """Placeholder for a parameter that each image has in a column: an integer, or (``real``) a float."""

    column: int
    real: bool = False


class Form(NamedTuple):
    """A step of all images, or (``drawn`` >= 0) only of those whose number in that column is not 0."""

    name: str
    params: tuple[Any, ...] = ()
    drawn: int = -1


def shifted(form: Form, begin: int) -> Form:
    """The form with its columns moved by ``begin``."""
    name, params, drawn = form
    moved = [Slot(each.column + begin, each.real) if isinstance(each, Slot) else each for each in params]
    return Form(name, tuple(moved), drawn if drawn < 0 else drawn + begin)


class Structure:
    """The steps that images of one batch have in common, in order. Equal structures are the same object."""

    __slots__ = ("__weakref__", "columns", "forms")

    def __init__(self, forms: tuple[Form, ...]) -> None:
        """Made by ``Structure.of`` only."""
        slots = [value.column for form in forms for value in form.params if isinstance(value, Slot)]
        self.forms = forms
        self.columns = max([*slots, *(form.drawn for form in forms)], default=-1) + 1

    @staticmethod
    def of(*forms: Form) -> Structure:
        return _structure(forms)

    def steps(self, row: Sequence[Any]) -> Steps:
        """The steps of the image with these numbers."""
        own = [form for form in self.forms if form.drawn < 0 or row[form.drawn]]
        return tuple([(name, tuple([_value(each, row) for each in params])) for name, params, _ in own])

    def then(self, steps: Sequence[Step]) -> Structure:
        """The structure with more steps, the same for all images."""
        return _structure((*self.forms, *(Form(*step) for step in steps)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Structure.of, self.forms

    def __repr__(self) -> str:
        return f"<Structure of {self.columns} numbers: {', '.join(form.name for form in self.forms)}>"


@lru_cache(maxsize=256)
def _structure(forms: tuple[Form, ...]) -> Structure:
    return Structure(forms)


def _value(param: Any, row: Sequence[Any]) -> Any:
    """The value of a parameter for the image with these numbers."""
    if not isinstance(param, Slot):
        return param
    number = int(row[param.column])
    return float(np.int64(number).view(np.float64)) if param.real else number


class Rows(Sequence[Recipe]):
    """Recipes of one structure. Each recipe is made on access.

    Attributes:
        sources: the images' sources, a tuple or ``Sources``. structure: their common structure.
        numbers: int64 [images, columns]; float parameters are stored by their bits. Not to be changed.
    """

    __slots__ = ("numbers", "sources", "structure")
    sources: tuple[Source, ...] | Sources

    def __init__(self, sources: Sequence[Source], structure: Structure, numbers: Numbers) -> None:
        self.sources = sources if isinstance(sources, Sources) else tuple(sources)
        self.structure = structure
        self.numbers = np.ascontiguousarray(numbers, np.int64)
        if self.numbers.shape != (len(self.sources), structure.columns):
            raise ValueError(f"{len(self.sources)} images of {structure} have no numbers of shape {numbers.shape}")

    @staticmethod
    def of(recipes: Sequence[Recipe]) -> Rows | None:
        """The same recipes as rows.

        None if they have no structure in common, or a parameter is large, as a tensor is: structures are kept.
        """
        if isinstance(recipes, Rows):
            return recipes
        found = separated([recipe.steps for recipe in recipes])
        return None if found is None else Rows([recipe.source for recipe in recipes], *found)

    @property
    def selection(self) -> Selection:
        """The selection of the images, which is the same for all images of a batch."""
        return (self.sources[0] if isinstance(self.sources, tuple) else self.sources).selection

    def then(self, *steps: Step) -> Rows:
        """The recipes with more steps, the same for all of them."""
        return Rows(self.sources, self.structure.then(steps), self.numbers)

    def sizes(self) -> Sizes:
        """The sources' heights, widths, and whether their mode is "RGB": arrays [images]."""
        return sizes_of(self.table())

    def table(self) -> Numbers:
        """The table of the sources' pictures (``Sources.table``)."""
        if isinstance(self.sources, tuple):
            return table_of([source.header for source in self.sources])
        return self.sources.table()

    def of_lazy_pixels(self) -> bool:
        """Whether any source is made of pixels that are lazy themselves."""
        return isinstance(self.sources, tuple) and any(source.origin is not None for source in self.sources)

    def each_apart(self) -> bool:
        """Whether no two images share a source."""
        return not isinstance(self.sources, tuple) or len(set(map(id, self.sources))) == len(self.sources)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Recipe: ...
    @overload
    def __getitem__(self, place: slice) -> Rows: ...
    def __getitem__(self, place: int | slice) -> Recipe | Rows:
        if isinstance(place, slice):
            return Rows(self.sources[place], self.structure, self.numbers[place])
        return Recipe(self.sources[place], self.structure.steps(self.numbers[place].tolist()))

    def __iter__(self) -> Iterator[Recipe]:
        for source, row in zip(self.sources, self.numbers.tolist(), strict=True):
            yield Recipe(source, self.structure.steps(row))

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.sources, self.structure, self.numbers)

    def __repr__(self) -> str:
        return f"<Rows: {len(self)} of {self.structure}>"


def joined(parts: Sequence[Sequence[Recipe]]) -> Sequence[Recipe]:
    """Concatenate sequences of recipes; a single one is returned as it is."""
    return parts[0] if len(parts) == 1 else tuple([recipe for part in parts for recipe in part])


def then(recipes: Sequence[Recipe], steps: Steps) -> Sequence[Recipe]:
    """Recipes with more steps, which are the same for all of them and hashable."""
    own: Any = recipes
    if hasattr(recipes, "then"):  # rows, or what has arrived
        return own.then(*steps)  # type: ignore[no-any-return]
    return tuple([Recipe(source, before + steps) for source, before in recipes])


# -- single recipes to rows -------------------------------------------------------------------


def separated(images: Sequence[Steps]) -> tuple[Structure, Numbers] | None:
    """The structure and the numbers of images with these steps; None as for ``Rows.of``."""
    parts = [_parts(steps) for steps in images]
    if len({tuple([name for name, _ in plain]) for plain, _ in parts}) != 1:
        return None
    columns: list[list[int]] = []
    forms: list[Form] = []
    for place, (name, _) in enumerate(parts[0][0]):
        found = _drawn([drawn[place] for _, drawn in parts], columns)
        form = _form(name, [plain[place][1] for plain, _ in parts], columns)
        if found is None or form is None:
            return None
        forms += [*found, form]
    last = _drawn([drawn[-1] for _, drawn in parts], columns)
    if last is None:
        return None
    try:
        numbers = np.array(columns, np.int64).reshape(len(columns), len(images)).T
        return Structure.of(*forms, *last), np.ascontiguousarray(numbers)
    except (TypeError, OverflowError):  # a parameter has no hash, or a number more than 64 bits
        return None


def _drawn(images: Sequence[Sequence[Step]], columns: list[list[int]]) -> list[Form] | None:
    """Forms of ``DRAWN`` steps that some images have at one place; None if there is no order that fits all."""
    longest = sorted(images, key=len, reverse=True)
    steps = sorted(dict.fromkeys([step for own in longest for step in own]), key=lambda step: step[0] != "convert")
    if any([step for step in steps if step in own] != own for own in images):
        return None
    forms = []
    for step in steps:
        has = [step in own for own in images]
        forms.append(Form(*step, -1 if all(has) else len(columns)))
        if not all(has):
            columns.append([int(each) for each in has])
    return forms


def _form(name: str, images: Sequence[tuple[Any, ...]], columns: list[list[int]]) -> Form | None:
    """The form of a step with these parameters of all images; those that differ become columns."""
    if len({len(params) for params in images}) > 1:
        return None
    params: list[Any] = []
    for values in zip(*images, strict=True):
        kinds = {type(value) for value in values}
        if _same(values):
            if not _is_small(values[0]):
                return None
            params.append(values[0])
        elif kinds in ({int}, {float}):
            params.append(Slot(len(columns), kinds == {float}))
            columns.append([int(np.float64(v).view(np.int64)) if kinds == {float} else v for v in values])
        else:
            return None
    return Form(name, tuple(params))


def _parts(steps: Steps) -> tuple[list[Step], list[list[Step]]]:
    """Split steps into those that every image has, and the ``DRAWN`` ones before each of them and after the last."""
    plain: list[Step] = []
    drawn: list[list[Step]] = [[]]
    for is_drawn, group in groupby(steps, lambda step: step[0] in DRAWN):
        for step in group:
            if is_drawn:
                drawn[-1].append(step)
            else:
                plain.append(step)
                drawn.append([])
    return plain, drawn


def _is_small(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_small, value))
    return (
        value is None
        or isinstance(value, (int, float, str, Enum, torch.dtype, torch.memory_format))
        or (isinstance(value, bytes) and len(value) <= _LONGEST)
    )


_LONGEST = 1 << 12
"""The most bytes of a parameter of a structure; tables of levels have 768."""


def _same(values: tuple[Any, ...]) -> bool:
    first = values[0]
    try:
        return all(each is first or (type(each) is type(first) and bool(each == first)) for each in values)
    except (RuntimeError, ValueError):  # tensors, or arrays, of several values
        return False
