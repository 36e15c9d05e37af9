"""Transforms that are applied by chance, chosen from several, or applied in a random order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

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


class Chooser(NamedTuple):
    """A choice.

    Attributes:
        most: the most outputs of torch's generator that it takes. choose: draws the chosen numbers from a tape.
    """

    most: int
    choose: Callable[[Tape], Sequence[int]]


class Choice:
    """The parts of a program that are chosen, in the chosen order."""

    def __init__(self, chooser: Chooser, parts: Sequence[Sequence[Instruction]]) -> None:
        self._choose, self._parts = chooser.choose, parts
        self.most = chooser.most + sum(op.most for part in parts for op in part)

    def draw(self, run: Run, height: int, width: int) -> Size:
        for chosen in self._choose(run.tape):
            height, width = _all(self._parts[chosen], run, height, width)
        return height, width


def multinomial(chances: Sequence[float]) -> Chooser:
    """The choice of v2's ``RandomChoice``, by ``torch.multinomial``.

    Raises:
        Refused: the number of outputs that it takes is not known.
    """
    draw = partial(torch.multinomial, torch.tensor(chances, dtype=torch.float32, device="cpu"), 1)
    most = outputs_of(lambda generator: draw(generator=generator))
    if most < 0:
        raise Refused("torch draws with unequal chances otherwise than usual")
    return Chooser(most, lambda tape: (tape.by(lambda generator: int(draw(generator=generator)), most),))


def python_choice(count: int, chances: Sequence[float] | None) -> Chooser:
    """The choice of v1's ``RandomChoice`` among ``count``, by Python's ``random``."""
    return Chooser(0, lambda tape: tape.python.choices(range(count), weights=chances))


def python_order(count: int) -> Chooser:
    """The order of v1's ``RandomOrder`` of ``count``, by Python's ``random``."""

    def shuffled(tape: Tape) -> Sequence[int]:
        order = list(range(count))
        tape.python.shuffle(order)
        return order

    return Chooser(0, shuffled)


def permutation(count: int) -> Chooser:
    """``torch.randperm(count)``."""

    def permuted(tape: Tape) -> Sequence[int]:
        order = list(range(count))
        for place in range(count - 1):
            other = place + tape.below(count - place)
            order[place], order[other] = order[other], order[place]
        return order

    return Chooser(count - 1, permuted)


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
    _order = staticmethod(permutation(4).choose)

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
