"""Policies: one of several operations is applied to an image, with some magnitude."""

from __future__ import annotations

import copy
from typing import Any

from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.hooks.compiled.random_numbers.tape import UNIT, rounded
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms.draws import Run, Size
from accel.hooks.compiled.transforms.fixed import Fixed, ImageKind, alike
from accel.system.private_names import private

_policies = private("torchvision.transforms.autoaugment", "_apply_op")


class _Policy:
    """Base class of policies. The steps of an operation are found when it is first drawn.

    Args:
        bins: the number of magnitudes.
    """

    def __init__(self, transform: Any, bins: int, kind: ImageKind) -> None:
        self._transform, self._bins, self._kind = copy.deepcopy(transform), bins, kind
        self._is_v2 = isinstance(transform, v2.Transform)
        self._fixed: dict[tuple[str, int, bool], Fixed] = {}
        space = self._space(99, 99)
        self._names = list(space)
        self._kinds = {
            name: (magnitudes is not None and magnitudes.ndim > 0, signed)
            for name, (magnitudes, signed) in space.items()
        }

    def _space(self, height: int, width: int) -> dict[str, tuple[Any, bool]]:
        """The operations for an image of a size, by name: their magnitudes, and whether these may be negative."""
        if self._is_v2:
            of_class = type(self._transform)._AUGMENTATION_SPACE
            return {name: (make(self._bins, height, width), signed) for name, (make, signed) in of_class.items()}
        more = () if isinstance(self._transform, v1.TrivialAugmentWide) else ((height, width),)
        found: dict[str, tuple[Any, bool]] = self._transform._augmentation_space(self._bins, *more)
        return found

    def _do(self, run: Run, height: int, width: int, name: str, grade: int, *, negative: bool) -> Size:
        fixed = self._fixed.get((name, grade, negative))
        if fixed is None:
            done = self._done(name, grade, negative=negative)
            fixed = self._fixed[name, grade, negative] = Fixed([done], self._kind, most_sizes=16)
        size = fixed.draw(run, height, width)
        if fixed.after is None or not alike(fixed.after, self._kind):
            raise Refused("a policy makes images of another kind")
        return size

    def _done(self, name: str, grade: int, *, negative: bool) -> Any:
        def apply(image: Any) -> Any:
            height, width = v1.functional.get_dimensions(image)[1:]
            magnitude = float(self._space(height, width)[name][0][grade]) if self._kinds[name][0] else 0.0
            magnitude = -magnitude if negative else magnitude
            transform = self._transform
            more = {"interpolation": transform.interpolation}
            if self._is_v2:
                return transform._apply_image_or_video_transform(image, name, magnitude, fill=transform._fill, **more)
            fill = filled(transform.fill, self._kind)
            return _policies._apply_op(image, name, magnitude, fill=fill, **more)

        return apply


def filled(fill: Any, kind: ImageKind) -> Any:
    """The fill that v1's transforms give to their functions, for images of a kind."""
    if kind.cls is None or fill is None:
        return fill
    return [float(fill)] * kind.channels if isinstance(fill, (int, float)) else list(map(float, fill))


class RandAugment(_Policy):
    """``RandAugment`` and ``TrivialAugmentWide`` of either version."""

    def __init__(self, transform: Any, kind: ImageKind) -> None:
        super().__init__(transform, transform.num_magnitude_bins, kind)
        self._count, self._magnitude = getattr(transform, "num_ops", 1), getattr(transform, "magnitude", None)
        self.most = 3 * self._count

    def draw(self, run: Run, height: int, width: int) -> Size:
        tape = run.tape
        for _ in range(self._count):
            name = self._names[tape.below(len(self._names))]
            grades, signed = self._kinds[name]
            grade, negative = self._magnitude or 0, False
            if grades and self._magnitude is None:
                grade = tape.below(self._bins)
            if signed and (grades or not self._is_v2):
                negative = tape.uniform(UNIT) <= 0.5 if self._is_v2 else tape.below(2) == 1
            height, width = self._do(run, height, width, name, grade, negative=negative)
        return height, width


class AutoAugment(_Policy):
    """``AutoAugment`` of either version.

    Args:
        policies: pairs of operations, each as (name, probability, number of the magnitude).
    """

    most = 5

    def __init__(self, transform: Any, policies: Any, kind: ImageKind) -> None:
        super().__init__(transform, 10, kind)
        self._pairs = [[(name, rounded(chance), grade) for name, chance, grade in pair] for pair in policies]

    def draw(self, run: Run, height: int, width: int) -> Size:
        tape, is_v2 = run.tape, self._is_v2
        pair = self._pairs[tape.below(len(self._pairs))]
        if not is_v2:
            drawn = [tape.uniform(UNIT), tape.uniform(UNIT)]
            signs = [tape.below(2), tape.below(2)]
        for place, (name, chance, grade) in enumerate(pair):
            if (tape.uniform(UNIT) if is_v2 else drawn[place]) <= chance:
                grades, signed = self._kinds[name]
                negative = False
                if signed and (grades or not is_v2):
                    negative = tape.uniform(UNIT) <= 0.5 if is_v2 else signs[place] == 0
                height, width = self._do(run, height, width, name, grade or 0, negative=negative)
        return height, width
