"""Programs: what a composition of torchvision's transforms draws and records, found once for all images."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.hooks.compiled import stock
from accel.hooks.compiled.random_numbers.live import Again
from accel.hooks.compiled.random_numbers.tape import Instead, Tape, default, in_turn, of_default
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import drawing, draws, known
from accel.hooks.compiled.transforms.draws import Instruction, Piece, Run, Size
from accel.hooks.compiled.transforms.fixed import RGB, ImageKind, kind_of
from accel.hooks.own_generators import Own, with_own
from accel.ops import LEFT
from accel.recipes.recipe import Recipe, Source
from accel.recipes.rows import Form, Numbers, Rows
from accel.system import counters
from accel.system.timing import clocks

Which = npt.NDArray[np.bool_]


class Program:
    """The draws and steps of a composition of transforms.

    Attributes:
        kind: the kind of image that it makes.
    """

    kind: ImageKind

    def __init__(self, transforms: Sequence[Any], begin: ImageKind) -> None:
        self._transforms = copy.deepcopy(transforms)
        self._begin = begin
        self._ops: list[Instruction] = []
        self._usual, self._most = 8, 0  # draws per image
        self._tried = self._trusted = False
        self._alike: drawing.Known = {}
        self._together = False  # whether compiled code draws the same as the parts do
        self._why = "it records something else"

    def run(self, sizes: Numbers, grey: Which | None, instead: Instead | None = None) -> Outcome:
        """Draw for images of these sizes, ahead of the generators, which are not changed; call ``prepare`` before.

        Args:
            sizes: int64 [images, n]; the last two columns are heights and widths.
            grey: bool [images], which of them are converted to RGB first; None: none.
            instead: the outputs to draw from first, which ``Tape.commit`` returned.

        Raises:
            Refused: the images are left to torchvision.
        """
        if instead is not None:
            return self._drawn_one_by_one(sizes, grey, Again(*instead))
        if not self._most:
            return self._drawn(sizes, grey, Tape(default.get_state(), 0))
        try:
            return self._drawn(sizes, grey, of_default(len(sizes) * min(self._usual, self._most) + 1))
        except IndexError:
            self._usual *= 2
            return self._drawn(sizes, grey, of_default(len(sizes) * self._most + 1))

    def one(self, size: Size, tape: Tape, is_grey: bool | None = None) -> tuple[Run, Size]:
        """Draw for one image of this size from a tape; call ``prepare`` before. Returns its run and new size.

        ``is_grey``: whether it is converted to RGB first; None: there is no such step.

        Raises:
            Refused: the image is left to torchvision.
        """
        run = Run(tape)
        if is_grey is not None:
            run.pieces.append(_TO_RGB)
            run.row.append(is_grey)
        height, width = size
        for op in self._ops:
            height, width = op.draw(run, height, width)
        return run, (height, width)

    def prepare(self, transform: Any) -> None:
        """Make the program and compare it with the transform that it is made of, unless that has been done.

        Raises:
            Refused: it cannot be made, or differs.
        """
        if self._trusted:
            return
        with in_turn:
            if not self._tried:
                self._tried = True
                with clocks.unmeasured():
                    self._try_beside(transform)
        if not self._trusted:
            raise Refused(self._why)

    def _try_beside(self, transform: Any) -> None:
        try:
            if LEFT:
                raise Refused(f"torchvision runs {', '.join(LEFT)} itself")
            self._ops, self.kind = known.built(self._transforms, self._begin)
            self._most = sum(op.most for op in self._ops)
            self._trusted = self._is_right(transform)
            if not self._trusted:
                counters.fallback(
                    "a pipeline is not compiled: when it was tried, it did not do what torchvision's classes do"
                )
        except Exception as error:
            self._why = str(error) if isinstance(error, Refused) else f"it raises {type(error).__name__}"

    def _drawn(self, sizes: Numbers, grey: Which | None, tape: Tape) -> Outcome:
        together = self._drawn_together(sizes, grey, tape) if self._together else None
        return together or self._drawn_one_by_one(sizes, grey, tape)

    def _drawn_together(self, sizes: Numbers, grey: Which | None, tape: Tape) -> Outcome | None:
        run = Run(tape)
        if grey is not None:
            run.pieces.append(_TO_RGB)
            run.row.append(0)
        found = drawing.numbers_of(self._ops, sizes, run, self._alike)
        if found is None:
            return None
        numbers, size = found
        if grey is not None:
            numbers[:, 0] = grey
        return Outcome((run,), (size,) * len(sizes), tape, numbers)

    def _drawn_one_by_one(self, sizes: Numbers, grey: Which | None, tape: Tape) -> Outcome:
        becomes = repeat(None) if grey is None else grey.tolist()
        images = zip(sizes[:, -2:].tolist(), becomes, strict=False)
        runs, after = zip(*[self.one(size, tape, is_grey) for size, is_grey in images], strict=True)
        return Outcome(runs, after, tape)

    def _is_right(self, transform: Any) -> bool:
        """Whether this does what the transform does, for images of several sizes, with different draws each time."""
        python = random.Random()
        transform = with_own(transform, python)
        trial.goes_on = True
        try:
            right = all(self._does_as(transform, python, size, seed) for seed, size in enumerate(2 * _SIZES))
            self._together = right and self._is_same_together()
            return right
        finally:
            trial.goes_on = False

    def _is_same_together(self) -> bool:
        """Whether compiled code draws batches, of one size and of several, the same as they are drawn one by one."""
        if not drawing.knows(self._ops):
            return False
        batches = [2 * _SIZES, *(8 * (size,) for size in _SIZES)]
        same = all(self._draws_same_together(sizes, seed) for seed, sizes in enumerate(batches))
        if not same:
            counters.fallback(
                "batches are drawn by Python: when it was tried, compiled code did not draw the same numbers"
            )
        return same

    def _draws_same_together(self, of_images: Sequence[Size], seed: int) -> bool:
        state = torch.Generator().manual_seed(seed).get_state()
        length, sizes = len(of_images) * self._most + 1, np.array(of_images, np.int64)
        which = [self._begin == RGB and bool(seed & place & 1) for place in range(len(sizes))]
        grey = np.array(which) if any(which) else None
        try:
            expected = self._drawn_one_by_one(sizes, grey, Tape(state, length))
        except Refused:
            return True  # such a batch will always be refused
        try:
            found = self._drawn_together(sizes, grey, Tape(state, length))
        except Exception:
            return False  # it could not be compiled
        if found is None or found.numbers is None:
            return True  # such a batch will always be drawn one by one
        pieces = found.runs[0].pieces
        same = all(run.pieces == pieces for run in expected.runs)
        same = same and found.numbers.tolist() == [run.row for run in expected.runs]
        return same and found.sizes == expected.sizes and found.tape.at == expected.tape.at

    def _does_as(self, transform: Any, python: random.Random, size: Size, seed: int) -> bool:
        """Whether this does what the transform does for one image of a size, including the generators' states.

        ``python``: what the transform draws from as it would from Python's ``random``.
        """
        own = torch.Generator().manual_seed(seed)
        python.seed(seed)
        expected = copy.copy(python)
        tape = Tape(own.get_state(), self._most, python)
        try:
            run, after = self.one(size, tape)
        except Refused:
            return True  # such an image will always be refused
        used = tape.python.used
        with Own(own):
            image = transform(self._begin.image(size, ()))
        found = kind_of(image, self.kind)
        same = found is not None and found[:2] == (self.kind, after)
        same = same and torch.equal(own.get_state(), tape.after())
        same = same and used == [expected.getrandbits(32) for _ in used] and expected.getstate() == python.getstate()
        return same and equal(found[2], run.steps())  # type: ignore[index]


class Outcome(NamedTuple):
    """Images that were drawn: their runs, resulting sizes, and the tape, which must then be committed.

    ``numbers``: the numbers of all images, int64 [images, columns], if all have the pieces of the only run; None: each
    has a run.
    """

    runs: Sequence[Run]
    sizes: Sequence[Size]
    tape: Tape
    numbers: Numbers | None = None

    def recipes(self, sources: Sequence[Source]) -> Rows | tuple[Recipe, ...]:
        """The recipes of the drawn images, as rows if they have the same structure."""
        runs, numbers = self.runs, self.numbers
        first = runs[0].pieces
        alike = numbers is not None or all(run.pieces == first for run in runs)
        structure = draws.structure(tuple(first)) if alike else None
        if structure is not None:
            if numbers is None:
                numbers = np.array([run.row for run in runs], np.int64).reshape(len(sources), structure.columns)
            return Rows(sources, structure, numbers)
        if numbers is not None:
            runs = [runs[0].alike(row) for row in numbers.tolist()]
        return tuple(Recipe(source, run.steps()) for source, run in zip(sources, runs, strict=True))


def equal(one: Any, other: Any) -> bool:
    """Whether steps or their parameters are equal in type and value."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


class _Trial(threading.local):
    """Whether this thread is trying a program; compositions must not use one then."""

    goes_on = False


trial = _Trial()

_SIZES = ((375, 500), (500, 333), (3, 400), (600, 2), (32, 32), (1, 1), (224, 224), (1200, 37), (48, 1600), (256, 257))
"""(height, width) of the images that a program is tried on; in some of them no crop fits."""

_TO_RGB = Piece(Form("convert", ("RGB",), 0))


def compiled(transform: Any, begin: ImageKind = RGB) -> Program:
    """The program of a transform as it is now, for images that begin as this kind.

    Raises:
        Refused: it has none.
    """
    changes = stock.surroundings()
    found = stock.leaves(transform, known.TRANSFORMS)
    key = changes, begin, *[leaf for _, leaf in found]
    program = _programs.get(key)
    if program is None:
        if len(_programs) > _MOST:
            _programs.clear()
        program = _programs[key] = Program([transform for transform, _ in found], begin)
    return program


_MOST = 64
_programs: dict[Any, Program] = {}
