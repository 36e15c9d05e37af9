"""Recipes of one structure: the same steps on many sources, with columns of numbers where their parameters differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import torch

from accel.options import Selection
from accel.recipe import Recipe, Source, Step
from accel.sources import Numbers as Numbers
from accel.sources import Pictures as Pictures
from accel.sources import Sources, sizes_of, table_of
from accel.system.page_locks import Block

DRAWN = frozenset({"convert", "hflip", "vflip"})
"""Steps that some images of a structure may lack."""


@dataclass(frozen=True)
class Slot:
    """Stands for a parameter that is another one for every image: an integer, or (``real``) a float."""

    column: int
    real: bool = False


class Form(NamedTuple):
    """A step of all images, or (``drawn`` >= 0) of those that have no 0 in that column; the others lack it."""

    name: str
    params: tuple[Any, ...] = ()
    drawn: int = -1


def shifted(form: Form, begin: int) -> Form:
    """A form whose numbers begin there."""
    name, params, drawn = form
    moved = [Slot(each.column + begin, each.real) if isinstance(each, Slot) else each for each in params]
    return Form(name, tuple(moved), drawn if drawn < 0 else drawn + begin)


class Structure:
    """What images of one kind have in common: the steps in their order. Equal ones are the same object."""

    __slots__ = ("__weakref__", "columns", "forms")

    def __init__(self, forms: tuple[Form, ...]) -> None:
        """For ``Structure.of``."""
        slots = [value.column for form in forms for value in form.params if isinstance(value, Slot)]
        self.forms = forms
        self.columns = max([*slots, *(form.drawn for form in forms)], default=-1) + 1

    @staticmethod
    def of(*forms: Form) -> Structure:
        return _structure(forms)

    def steps(self, row: Sequence[Any]) -> tuple[Step, ...]:
        """The steps of an image with these numbers."""
        return tuple([
            (name, tuple([_value(value, row) if isinstance(value, Slot) else value for value in params]))
            for name, params, drawn in self.forms
            if drawn < 0 or row[drawn]
        ])  # fmt: skip

    def then(self, steps: Sequence[Step]) -> Structure:
        """The structure with more steps, which are the same of all images."""
        return _structure((*self.forms, *(Form(*step) for step in steps)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Structure.of, self.forms

    def __repr__(self) -> str:
        return f"<Structure of {self.columns} numbers: {', '.join(form.name for form in self.forms)}>"


@lru_cache(maxsize=256)
def _structure(forms: tuple[Form, ...]) -> Structure:
    return Structure(forms)


def _value(slot: Slot, row: Sequence[Any]) -> int | float:
    number = int(row[slot.column])
    return float(np.int64(number).view(np.float64)) if slot.real else number


class Ahead(NamedTuple):
    """What a worker has computed of rows with its accelerator's backend, but for the device.

    It holds for these very rows, with images in the order [channels, height, width].

    Attributes:
        shape: of the result, (images, channels, height, width). dtype: of that.
        slot: uint8, what all lies in that was sent.
        first: the word of that, of 64 bits, from which on it says of each of the backend's own parts
            (``AcceleratorBackend.ahead``) where it begins, a multiple of 64, and how many bytes it has.
        files: where in the slot the files begin. selection: the backend that runs them.
        memory: the slot, where a device may have it locked.
    """

    shape: tuple[int, int, int, int]
    dtype: torch.dtype
    slot: npt.NDArray[np.uint8]
    first: int
    files: int
    selection: Selection
    memory: Block | None = None

    def part(self, number: int) -> npt.NDArray[np.uint8]:
        """One of the backend's parts."""
        where = 8 * (self.first + 2 * number)
        start, size = self.slot[where : where + 16].view(np.int64).tolist()
        return self.slot[start : start + size]


class Rows(Sequence[Recipe]):
    """Recipes of one structure. A recipe is made of a row when somebody looks at it.

    Attributes:
        sources: of the images, a tuple or ``Sources``. structure: of all of them.
        numbers: of each, int64 [images, columns]; float parameters are there by their bits. Not to be changed.
        ahead: what a worker has computed of them already (``Ahead``); None: nothing.
    """

    __slots__ = ("_rest", "ahead", "numbers", "sources", "structure")
    sources: tuple[Source, ...] | Sources
    numbers: Numbers
    _rest: Callable[[], Rows]

    def __init__(self, sources: Sequence[Source], structure: Structure, numbers: Numbers) -> None:
        self.sources = sources if isinstance(sources, Sources) else tuple(sources)
        self.structure = structure
        self.ahead: Ahead | None = None
        self.numbers = np.ascontiguousarray(numbers, np.int64)
        if self.numbers.shape != (len(self.sources), structure.columns):
            raise ValueError(f"{len(self.sources)} images of {structure} have no numbers of shape {numbers.shape}")

    @classmethod
    def finished(cls, structure: Structure, ahead: Ahead, rest: Callable[[], Rows]) -> Rows:
        """Rows of which all is computed ahead; ``rest`` gives those that have the sources and numbers as well, when
        somebody looks at these."""
        rows = cls.__new__(cls)
        rows.structure, rows.ahead, rows._rest = structure, ahead, rest
        return rows

    def __getattr__(self, name: str) -> Any:
        # only reached for what is not there yet
        if name not in ("sources", "numbers"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        rest = self._rest()
        self.sources, self.numbers = rest.sources, rest.numbers
        return getattr(self, name)

    @staticmethod
    def of(recipes: Sequence[Recipe]) -> Rows | None:
        """The same recipes as rows; None where they have no structure in common (or no step can be compared)."""
        if isinstance(recipes, Rows):
            return recipes
        found = separated([recipe.steps for recipe in recipes])
        return None if found is None else Rows([recipe.source for recipe in recipes], *found)

    @property
    def selection(self) -> Selection:
        """The selection of the images, which is one for all that are stacked."""
        if self.ahead is not None:
            return self.ahead.selection
        sources = self.sources
        return sources[0].selection if isinstance(sources, tuple) else sources.selection

    def then(self, *steps: Step) -> Rows:
        """The recipes with more steps, which are the same of all of them."""
        return Rows(self.sources, self.structure.then(steps), self.numbers)

    def sizes(self) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
        """The heights and widths of the sources, and whether they are of mode "RGB": arrays [images]."""
        return sizes_of(self.table())

    def table(self) -> Numbers:
        """What is known of the pictures of the sources (``Sources.table``)."""
        if isinstance(self.sources, tuple):
            return table_of([source.header for source in self.sources])
        return self.sources.table()

    def of_lazy_pixels(self) -> bool:
        """Whether some are made from pixels that are lazy themselves."""
        return isinstance(self.sources, tuple) and any(source.origin is not None for source in self.sources)

    def each_apart(self) -> bool:
        """Whether no two images are made from one source."""
        return not isinstance(self.sources, tuple) or len(set(map(id, self.sources))) == len(self.sources)

    def __len__(self) -> int:
        return len(self.numbers) if self.ahead is None else self.ahead.shape[0]

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
    """Recipes of several kinds one after another, as they are where there is one part."""
    return parts[0] if len(parts) == 1 else tuple([recipe for part in parts for recipe in part])


def then(recipes: Sequence[Recipe], steps: tuple[Step, ...]) -> Sequence[Recipe]:
    """Recipes with more steps, which are the same of all of them and can be compared."""
    if isinstance(recipes, Rows):
        return recipes.then(*steps)
    return tuple([Recipe(source, before + steps) for source, before in recipes])


# -- recipes to rows: where they came one by one ----------------------------------------------


def separated(images: Sequence[tuple[Step, ...]]) -> tuple[Structure, Numbers] | None:
    """The structure of images with these steps, and their numbers; None: see ``Rows.of``."""
    if not images:
        return None
    columns: list[list[int]] = []
    forms: list[Form] = []
    parts = [_parts(steps) for steps in images]
    if len({tuple([name for name, _ in plain]) for plain, _ in parts}) > 1:
        return None
    for place in range(len(parts[0][0]) + 1):
        present = [drawn[place] for _, drawn in parts]
        longest = sorted(present, key=len, reverse=True)
        steps = sorted(dict.fromkeys([step for own in longest for step in own]), key=lambda step: step[0] != "convert")
        if any([step for step in steps if step in own] != own for own in present):
            return None
        for step in steps:
            has = [step in own for own in present]
            forms.append(Form(*step, -1 if all(has) else len(columns)))
            if not all(has):
                columns.append([int(each) for each in has])
        if place < len(parts[0][0]):
            given = [plain[place][1] for plain, _ in parts]
            if len({len(params) for params in given}) > 1:
                return None
            params: list[Any] = []
            for values in zip(*given, strict=True):
                kinds = {type(value) for value in values}
                if _same(values):
                    params.append(values[0])
                elif kinds in ({int}, {float}):
                    params.append(Slot(len(columns), kinds == {float}))
                    columns.append([int(np.float64(v).view(np.int64)) if kinds == {float} else v for v in values])
                else:
                    return None
            forms.append(Form(parts[0][0][place][0], tuple(params)))
    numbers = np.array(columns, np.int64).reshape(len(columns), len(images)).T
    try:
        return Structure.of(*forms), np.ascontiguousarray(numbers)
    except TypeError:  # a parameter has no hash
        return None


def _parts(steps: tuple[Step, ...]) -> tuple[list[Step], list[list[Step]]]:
    """The steps that every image has, and those that may be drawn before each of them and after all."""
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


def _same(values: tuple[Any, ...]) -> bool:
    first = values[0]
    try:
        return all(each is first or (type(each) is type(first) and bool(each == first)) for each in values)
    except (RuntimeError, ValueError):  # tensors, or arrays, of several values
        return False
