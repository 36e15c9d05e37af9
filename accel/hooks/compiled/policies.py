"""Transforms that choose: what to do, of several things, or whether to do anything at all."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.hooks.compiled.draws import UNIT, Op, Piece, Run, Size, bits, shifted
from accel.hooks.compiled.fixed import Fixed, Kind
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.tape import Bounds, Tape, rounded
from accel.rows import Form
from accel.system.private_names import private

_policies = private("torchvision.transforms.autoaugment", "_apply_op")


class Perhaps:
    """Some of a program by chance. ``also_equal``: a draw of just the probability is a hit, too."""

    def __init__(self, probability: float, ops: Sequence[Op], *, also_equal: bool = False) -> None:
        self.most = 1 + sum(op.most for op in ops)
        self.probability, self.ops, self.also_equal = rounded(probability), ops, also_equal

    def draw(self, run: Run, height: int, width: int) -> Size:
        drawn = run.tape.uniform(UNIT)
        if drawn < self.probability or (self.also_equal and drawn == self.probability):
            for op in self.ops:
                height, width = op.draw(run, height, width)
        return height, width


class Jitter:
    """``ColorJitter`` of either version: its steps are in an order that is drawn.

    Args:
        bounds: of the factors, None of what is not done. forms: of the steps, in each of which slot 0 is its
            factor; any of what is not done.
    """

    most = 7

    def __init__(self, bounds: Sequence[Bounds | None], forms: Sequence[Form]) -> None:
        self.bounds, self.forms = bounds, forms
        self.pieces: dict[tuple[int, ...], Piece] = {}

    def draw(self, run: Run, height: int, width: int) -> Size:
        order = permuted(run.tape)
        factors = [0.0 if bounds is None else run.tape.uniform(bounds) for bounds in self.bounds]
        done = tuple([each for each in order if self.bounds[each] is not None])
        piece = self.pieces.get(done)
        if piece is None:
            piece = self.pieces[done] = Piece(*[shifted(self.forms[each], place) for place, each in enumerate(done)])
        run.pieces.append(piece)
        run.row += [bits(factors[each]) for each in done]
        return height, width


def permuted(tape: Tape) -> list[int]:
    """``torch.randperm(4)``."""
    order = list(range(4))
    for place in range(3):
        other = place + tape.below(4 - place)
        order[place], order[other] = order[other], order[place]
    return order


class Choice:
    """``RandAugment`` and ``TrivialAugmentWide`` of either version: one of several things at some magnitude.

    What each of them does is found out when it is drawn for the first time.

    Args:
        given: the attributes of the transform. count: how often it chooses.
    """

    def __init__(self, transform: Any, given: dict[str, Any], kind: Kind) -> None:
        self._transform, self._kind = copy.deepcopy(transform), kind
        self._is_v2 = isinstance(transform, v2.Transform)
        self._bins, self._count = given["num_magnitude_bins"], given.get("num_ops", 1)
        self._magnitude = given.get("magnitude")
        self.most = 3 * self._count
        self._fixed: dict[tuple[int, int, bool], Fixed] = {}
        space = self._space(99, 99)
        self._kinds = [
            (magnitudes is not None and magnitudes.ndim > 0, signed) for magnitudes, signed in space.values()
        ]

    def _space(self, height: int, width: int) -> dict[str, tuple[Any, bool]]:
        """What there is to be done to an image of a size: magnitudes, and whether they may be negative."""
        if self._is_v2:
            of_class = type(self._transform)._AUGMENTATION_SPACE
            return {name: (make(self._bins, height, width), signed) for name, (make, signed) in of_class.items()}
        more = () if self._magnitude is None else ((height, width),)
        found: dict[str, tuple[Any, bool]] = self._transform._augmentation_space(self._bins, *more)
        return found

    def draw(self, run: Run, height: int, width: int) -> Size:
        tape = run.tape
        for _ in range(self._count):
            chosen = tape.below(len(self._kinds))
            grades, signed = self._kinds[chosen]
            grade, negative = self._magnitude or 0, False
            if grades and self._magnitude is None:
                grade = tape.below(self._bins)
            if signed and (grades or not self._is_v2):
                negative = tape.uniform(UNIT) <= 0.5 if self._is_v2 else tape.below(2) == 1
            fixed = self._fixed.get((chosen, grade, negative))
            if fixed is None:
                done = self._done(chosen, grade, negative=negative)
                fixed = self._fixed[chosen, grade, negative] = Fixed([done], self._kind, most_sizes=64)
            height, width = fixed.draw(run, height, width)
            if fixed.after != self._kind:
                raise Refused("a policy makes images of another kind")
        return height, width

    def _done(self, chosen: int, grade: int, *, negative: bool) -> Any:
        def apply(image: Any) -> Any:
            height, width = v1.functional.get_dimensions(image)[1:]
            name, (magnitudes, _) = list(self._space(height, width).items())[chosen]
            magnitude = float(magnitudes[grade]) if self._kinds[chosen][0] else 0.0
            magnitude = -magnitude if negative else magnitude
            transform = self._transform
            more = {"interpolation": transform.interpolation}
            if self._is_v2:
                return transform._apply_image_or_video_transform(image, name, magnitude, fill=transform._fill, **more)
            fill = transform.fill
            if self._kind.cls is not None and fill is not None:
                fill = [float(fill)] * self._kind.channels if isinstance(fill, (int, float)) else list(map(float, fill))
            return _policies._apply_op(image, name, magnitude, fill=fill, **more)

        return apply
