"""Transforms that are applied by chance, chosen from several, or applied in a random order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch

from accel.hooks.compiled.random_numbers.tape import UNIT, Bounds, Tape, outputs_of, rounded
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms.drawing_formulas import happens
from accel.hooks.compiled.transforms.draws import Instruction, Piece, Run, Size, bits
from accel.recipes.rows import Form, shifted


class RandomApply:
    """Parts of a program that are applied with some probability.

    Args:
        also_equal: a draw equal to the probability counts as well. in_float64: the draw is compared as a Python float.
    """

    def __init__(
        self, probability: float, ops: Sequence[Instruction], *, also_equal: bool = False, in_float64: bool = False
    ) -> None:
        self.most = 1 + sum(op.most for op in ops)
        self.probability = probability if in_float64 else rounded(probability)
        self.ops, self.also_equal = ops, also_equal

    def draw(self, run: Run, height: int, width: int) -> Size:
        drawn = run.tape.uniform(UNIT)
        if drawn < self.probability or (self.also_equal and drawn == self.probability):
            return _all(self.ops, run, height, width)
        return height, width


def _all(ops: Sequence[Instruction], run: Run, height: int, width: int) -> Size:
    for op in ops:
        height, width = op.draw(run, height, width)
    return height, width


class Chooser(Protocol):
    """A function that draws numbers. ``most``: the most outputs of torch's generator that it takes."""

    most: int

    def __call__(self, tape: Tape) -> Sequence[int]: ...


class Choice:
    """The parts of a program that are chosen, in the chosen order."""

    def __init__(self, choose: Chooser, parts: Sequence[Sequence[Instruction]]) -> None:
        self._choose, self._parts = choose, parts
        self.most = choose.most + sum(op.most for part in parts for op in part)

    def draw(self, run: Run, height: int, width: int) -> Size:
        for chosen in self._choose(run.tape):
            height, width = _all(self._parts[chosen], run, height, width)
        return height, width


class Multinomial:
    """The choice of v2's ``RandomChoice``, by ``torch.multinomial``."""

    def __init__(self, chances: Sequence[float]) -> None:
        weights = torch.tensor(chances, dtype=torch.float32, device="cpu")
        self._draw = partial(torch.multinomial, weights, 1)
        self.most = outputs_of(lambda generator: self._draw(generator=generator))
        if self.most < 0:
            raise Refused("torch draws with unequal chances otherwise than usual")

    def __call__(self, tape: Tape) -> Sequence[int]:
        return (tape.by(lambda generator: int(self._draw(generator=generator)), self.most),)


class PythonChoice:
    """The choice of v1's ``RandomChoice`` among ``count``, by Python's ``random``."""

    most = 0

    def __init__(self, count: int, chances: Sequence[float] | None) -> None:
        self._each, self._chances = range(count), chances

    def __call__(self, tape: Tape) -> Sequence[int]:
        return tape.python.choices(self._each, weights=self._chances)


class PythonOrder:
    """The order of v1's ``RandomOrder`` of ``count``, by Python's ``random``."""

    most = 0

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, tape: Tape) -> Sequence[int]:
        order = list(range(self._count))
        tape.python.shuffle(order)
        return order


class Permutation:
    """``torch.randperm(count)``."""

    def __init__(self, count: int) -> None:
        self.most = self._others = count - 1

    def __call__(self, tape: Tape) -> list[int]:
        order = list(range(self._others + 1))
        for place in range(self._others):
            other = place + tape.below(self._others + 1 - place)
            order[place], order[other] = order[other], order[place]
        return order


class Colours:
    """Colour steps, each with a random factor.

    Args:
        bounds: the bounds of each factor; None: it is not drawn. forms: the form of each step, in which slot 0 is the
            factor; a form without a name: there is no step.
    """

    def __init__(self, bounds: Sequence[Bounds | None], forms: Sequence[Form]) -> None:
        self.bounds, self.forms = bounds, forms
        self._pieces: dict[tuple[int, ...], Piece] = {}

    def record(self, run: Run, done: Sequence[int], factors: Sequence[float] | dict[int, float]) -> None:
        """Add the steps with these numbers, in this order."""
        done = tuple([each for each in done if self.forms[each].name])
        piece = self._pieces.get(done)
        if piece is None:
            piece = self._pieces[done] = Piece(*[shifted(self.forms[each], place) for place, each in enumerate(done)])
        run.pieces.append(piece)
        run.row += [bits(factors[each]) for each in done]


class Jitter(Colours):
    """``ColorJitter`` of either version."""

    most = 7
    _order = Permutation(4)

    def draw(self, run: Run, height: int, width: int) -> Size:
        order = self._order(run.tape)
        factors = [0.0 if bounds is None else run.tape.uniform(bounds) for bounds in self.bounds]
        self.record(run, order, factors)
        return height, width


class Distort(Colours):
    """``RandomPhotometricDistort``: any of brightness, contrast, saturation and hue, and another order of channels.

    Args:
        permute: the part that permutes the channels.
    """

    def __init__(
        self, probability: float, bounds: Sequence[Bounds], forms: Sequence[Form], permute: Instruction
    ) -> None:
        super().__init__(bounds, forms)
        self._probability, self._permute = rounded(probability), permute
        self.most = 10 + permute.most

    def draw(self, run: Run, height: int, width: int) -> Size:
        tape, probability = run.tape, self._probability
        factors: dict[int, float] = {}
        for each, bounds in enumerate(self.bounds):
            if happens(tape, UNIT, probability):
                factors[each] = tape.uniform(bounds)  # type: ignore[arg-type]  # all are done
        first = happens(tape, UNIT, 0.5)
        permutes = happens(tape, UNIT, probability)
        self.record(
            run, tuple([each for each in ((0, 1, 2, 3) if first else (0, 2, 3, 1)) if each in factors]), factors
        )
        return self._permute.draw(run, height, width) if permutes else (height, width)
