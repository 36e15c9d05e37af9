"""Transforms that draw: what they draw from a tape, in torchvision's order, and the steps that they record."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

import torch
from PIL import Image

from accel.hooks.compiled.random_numbers.tape import UNIT, Bounds, Tape, rounded
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import drawing_formulas as formulas
from accel.ops import OPS
from accel.ops.helpers import THREADS
from accel.ops.row import KernelOp
from accel.recipes.recipe import Step
from accel.recipes.rows import Form, Slot, Structure, shifted

Size = tuple[int, int]


class Piece:
    """The forms that a transform adds to a recipe, with slots counted from the transform's own first number."""

    __slots__ = ("_parts", "columns", "forms", "kernels")

    def __init__(self, *forms: Form) -> None:
        self.kernels = any(_sums(form.name) for form in forms)
        slots = [value.column for form in forms for value in form.params if isinstance(value, Slot)]
        self.forms, self.columns = forms, max([*slots, *(form.drawn for form in forms)], default=-1) + 1
        self._parts: list[tuple[int, Step | None, int, Form]] | None = None

    def add(self, steps: list[Step], row: Sequence[int], begin: int) -> None:
        """Append the steps of an image, whose numbers for this piece begin at ``begin`` in its row."""
        parts = self._parts
        if parts is None:
            parts = self._parts = [_part(form) for form in self.forms]
        for drawn, step, numbers, form in parts:
            if drawn >= 0 and not row[begin + drawn]:
                continue
            if step is not None:
                steps.append(step)
            elif numbers:
                own = map(int, row[begin + form.params[0].column : begin + form.params[0].column + numbers])
                steps.append((form.name, (*own, *form.params[numbers:])))
            else:
                params = [value(each, row, begin) if isinstance(each, Slot) else each for each in form.params]
                steps.append((form.name, tuple(params)))


def _part(form: Form) -> tuple[int, Step | None, int, Form]:
    """A form's ``drawn``; its step if that is always the same, else None; the number of slots that its parameters are
    if these come first and have successive columns, else 0; and the form."""
    slots = [each for each in form.params if isinstance(each, Slot)]
    step = None if slots else (form.name, form.params)
    follow = [Slot(slots[0].column + place) for place in range(len(slots))] if slots else []
    return form.drawn, step, len(slots) if list(form.params[: len(slots)]) == follow else 0, form


def _sums(name: str) -> bool:
    """Whether torchvision runs a step and its result depends on the number of threads where it is recorded."""
    op = OPS.get(name)
    return isinstance(op, KernelOp) and not op.elementwise


def forms_of(pieces: Sequence[Piece]) -> tuple[Form, ...]:
    """The forms of an image to which these pieces were added in order."""
    forms: list[Form] = []
    begin = 0
    for piece in pieces:
        forms += [shifted(form, begin) for form in piece.forms] if begin else piece.forms
        begin += piece.columns
    return tuple(forms)


def structure(pieces: tuple[Piece, ...]) -> Structure | None:
    """The structure of images to which these pieces were added; None if each needs steps of its own."""
    return _structure(pieces, torch.get_num_threads() if any(piece.kernels for piece in pieces) else 0)


@lru_cache(maxsize=64)
def _structure(pieces: tuple[Piece, ...], threads: int) -> Structure | None:
    forms = forms_of(pieces)
    for place, form in enumerate(forms):
        if threads and _sums(form.name):
            if form.drawn >= 0:
                return None
            return Structure.of(*forms[:place], Form(THREADS, (threads,)), *forms[place:])
    return Structure.of(*forms)


class Run:
    """One image on its way through a program: the pieces added so far, and the row of its numbers."""

    __slots__ = ("pieces", "row", "tape")

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.pieces: list[Piece] = []
        self.row: list[int] = []

    def alike(self, row: list[int]) -> Run:
        """Another image with the same pieces and other numbers."""
        other = Run(self.tape)
        other.pieces, other.row = list(self.pieces), row
        return other

    def structure(self) -> Structure | None:
        """The structure of images with the same pieces; None if each needs steps of its own."""
        return structure(tuple(self.pieces))

    def steps(self) -> tuple[Step, ...]:
        """The steps recorded so far."""
        begin, steps = 0, list[Step]()
        for piece in self.pieces:
            piece.add(steps, self.row, begin)
            begin += piece.columns
        if any(piece.kernels for piece in self.pieces):
            for place, (name, _) in enumerate(steps):
                if _sums(name):
                    steps.insert(place, (THREADS, (torch.get_num_threads(),)))
                    break
        return tuple(steps)


def value(slot: Slot, row: Sequence[int], begin: int) -> int | float:
    number = int(row[begin + slot.column])
    return struct.unpack("<d", struct.pack("<q", number))[0] if slot.real else number


def bits(number: float) -> int:
    """The bits of a float as an integer, as rows of numbers hold it."""
    found: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return found


class Instruction(Protocol):
    """A part of a program.

    Attributes:
        most: the most draws that it makes for an image.
    """

    most: int

    def draw(self, run: Run, height: int, width: int) -> Size:
        """Draw and record what the transform does to an image of this size; return its (height, width) after that.

        Raises:
            Refused: the image is left to torchvision.
        """
        ...


_CROP = Form("crop", (Slot(0), Slot(1), Slot(2), Slot(3)))


def checked_area(height: int, width: int) -> None:
    """Refuse a crop so large that Pillow warns of it or raises."""
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and height * width > limit:
        raise Refused("a picture is larger than Pillow likes")


class ResizedCrop:
    """``RandomResizedCrop`` of either version.

    Args:
        resize: the step that is recorded if the crop has another size. of_tensor: a crop of the whole image is a step,
            too.
    """

    most = 22

    def __init__(self, size: Size, scale: Bounds, ratio: Bounds, logs: Bounds, resize: Form, of_tensor: bool) -> None:
        self.size, self.scale, self.logs, self.of_tensor = size, scale, logs, of_tensor
        self.ratio = float(min(ratio)), float(max(ratio))
        self.piece = Piece(_CROP._replace(drawn=-1 if of_tensor else 4), resize._replace(drawn=5))

    def draw(self, run: Run, height: int, width: int) -> Size:
        top, left, rows, columns = self.place(run.tape, height, width)
        checked_area(rows, columns)
        crops = self.of_tensor or rows != height or columns != width
        run.pieces.append(self.piece)
        run.row += (top, left, rows, columns, crops, (rows, columns) != self.size)
        return self.size

    def place(self, tape: Tape, height: int, width: int) -> tuple[int, int, int, int]:
        """Draw the crop's top, left, height and width."""
        return formulas.resized_crop(tape, height, width, self.scale, self.logs, *self.ratio)


class Crop:
    """``RandomCrop`` of either version, after its padding; ``both``: v1 draws top and left, or neither."""

    most = 2

    def __init__(self, size: Size, both: bool) -> None:
        self.size, self.both, self.crop = size, both, Piece(_CROP)

    def draw(self, run: Run, height: int, width: int) -> Size:
        box = self.place(run.tape, height, width)
        if (height, width) != self.size:
            run.pieces.append(self.crop)
            run.row += box
        return self.size

    def place(self, tape: Tape, height: int, width: int) -> tuple[int, int, int, int]:
        """Draw the crop's top and left, and return them with its height and width; the whole image needs no draw."""
        rows, columns = self.size
        if height < rows or width < columns:
            raise Refused("a picture is smaller than the crop")
        if (height, width) != self.size:
            checked_area(rows, columns)
        return *formulas.crop(tape, height, width, rows, columns, self.both), rows, columns


class Flip:
    """A random flip. ``step``: the name of the op."""

    most = 1

    def __init__(self, probability: float, step: str) -> None:
        self.probability, self.piece = rounded(probability), Piece(Form(step, (), 0))

    def draw(self, run: Run, height: int, width: int) -> Size:
        run.pieces.append(self.piece)
        run.row.append(formulas.happens(run.tape, UNIT, self.probability))
        return height, width


class Factor:
    """A step with a random factor. ``form``: gives the form for a (height, width), in which slot 0 is the factor."""

    most = 1

    def __init__(self, bounds: Bounds, form: Callable[[int, int], Form]) -> None:
        self._bounds, self._form = bounds, lru_cache(maxsize=1 << 13)(lambda height, width: Piece(form(height, width)))

    def draw(self, run: Run, height: int, width: int) -> Size:
        factor = run.tape.uniform(self._bounds)
        run.pieces.append(self._form(height, width))
        run.row.append(bits(factor))
        return height, width


class Erasing:
    """``RandomErasing`` of either version, with constant values."""

    most = 23

    def __init__(self, probability: float, scale: Bounds, logs: Bounds, values: tuple[float, ...]) -> None:
        self.probability, self.scale, self.logs = rounded(probability), scale, logs
        with torch.inference_mode(False):  # else the tensor could not be used outside of inference mode
            value = torch.tensor(values, device="cpu")[:, None, None]
        self.piece = Piece(Form("erase", (Slot(0), Slot(1), Slot(2), Slot(3), value)))

    def draw(self, run: Run, height: int, width: int) -> Size:
        tape = run.tape
        if formulas.happens(tape, UNIT, self.probability):
            for _ in range(10):
                rows, columns = formulas.sides(tape, height * width, self.scale, self.logs)
                if rows < height and columns < width:
                    top = tape.below(height - rows + 1)
                    run.row += (top, tape.below(width - columns + 1), rows, columns)
                    run.pieces.append(self.piece)
                    break
        return height, width


@lru_cache(maxsize=64)
def log_bounds(ratio: tuple[float, ...]) -> Bounds:
    """``torch.log(torch.tensor(ratio))`` as two floats."""
    low, high = torch.log(torch.tensor(ratio, dtype=torch.float32, device="cpu")).tolist()
    return low, high
