"""Transforms whose parameters hardly ever repeat: their steps are recorded anew for each image.

Torchvision's own function records them, on an image that is only a size, with parameters drawn from the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from accel.hooks.compiled.random_numbers.tape import Tape
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms.draws import Piece, Run, Size
from accel.hooks.compiled.transforms.fixed import ImageKind, alike, recorded
from accel.recipes.rows import Form

Draws = Callable[[Tape, int, int], Any]
"""Draws the parameters for an image: (tape, height, width) -> parameters."""


class TracedTransform:
    """A transform that is run to record its steps. ``most``: the most draws that it makes for an image."""

    def __init__(self, most: int, draws: Draws, apply: Callable[[Any, Any], Any], kind: ImageKind) -> None:
        self.most, self._draws, self._apply, self._kind = most, draws, apply, kind

    def draw(self, run: Run, height: int, width: int) -> Size:
        params = self._draws(run.tape, height, width)
        before = () if self._kind.cls is None else run.steps()  # on a tensor, they decide how the next one is recorded
        try:
            image = self._apply(self._kind.image((height, width), before), params)
        except Exception as error:
            raise Refused(f"it raises {type(error).__name__}") from None
        made = recorded(image, self._kind, before)
        if not alike(made.kind, self._kind):
            raise Refused("images become of several kinds")
        run.pieces.append(Piece(*[Form(*step) for step in made.steps]))
        return made.size


def between(bounds: Sequence[float]) -> Draws:
    """``torch.empty(1).uniform_(*bounds).item()``."""
    low, high = bounds
    return lambda tape, height, width: tape.uniform((low, high))


def whole(least: int, most: int) -> Draws:
    """A whole number from ``least`` to ``most``."""
    return lambda tape, height, width: least + tape.below(most - least + 1)


def affine(
    degrees: Sequence[float],
    translate: Sequence[float] | None,
    scale: Sequence[float] | None,
    shear: Sequence[float] | None,
) -> Draws:
    """The draws of ``RandomAffine``: angle, translation, scale and shear."""

    def draw(tape: Tape, height: int, width: int) -> tuple[Any, ...]:
        angle = tape.uniform((degrees[0], degrees[1]))
        moved = [0, 0]
        if translate is not None:
            most = float(translate[0] * width), float(translate[1] * height)
            moved = [int(round(tape.once((-each, each)))) for each in most]
        scaled = 1.0 if scale is None else tape.uniform((scale[0], scale[1]))
        sheared = [0.0, 0.0]
        for place in range(len(shear or ()) // 2):
            sheared[place] = tape.uniform((shear[2 * place], shear[2 * place + 1]))  # type: ignore[index]
        return angle, tuple(moved), scaled, tuple(sheared)

    return draw


def corners(distortion: float) -> Draws:
    """The draws of ``RandomPerspective``: the corners of an image, and the points that they are moved to."""

    def draw(tape: Tape, height: int, width: int) -> tuple[list[list[int]], list[list[int]]]:
        rows, columns = (int(distortion * (side // 2)) + 1 for side in (height, width))
        begin = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        end = [
            [
                (width - columns if right else 0) + tape.below(columns),
                (height - rows if lower else 0) + tape.below(rows),
            ]
            for right, lower in ((False, False), (True, False), (True, True), (False, True))
        ]
        return begin, end

    return draw


def _float32(tape: Tape, bounds: Sequence[float]) -> torch.Tensor:
    """``bounds[0] + torch.rand(1) * (bounds[1] - bounds[0])``, as torch computes it."""
    return bounds[0] + torch.tensor([tape.uniform((0.0, 1.0))], device="cpu") * (bounds[1] - bounds[0])


def side(least: int, most: int) -> Draws:
    """The draw of ``RandomResize``: a size."""
    return lambda tape, height, width: [least + tape.below(most - least)]


def jittered(target: Size, bounds: Sequence[float]) -> Draws:
    """The draw of ``ScaleJitter``: a size."""

    def draw(tape: Tape, height: int, width: int) -> Size:
        ratio = min(target[1] / height, target[0] / width) * _float32(tape, bounds)
        return int(height * ratio), int(width * ratio)

    return draw


def shortest(sizes: Sequence[int], largest: int | None) -> Draws:
    """The draw of ``RandomShortestSize``: a size."""

    def draw(tape: Tape, height: int, width: int) -> Size:
        ratio = sizes[tape.below(len(sizes))] / min(height, width)
        if largest is not None:
            ratio = min(ratio, largest / max(height, width))
        return int(height * ratio), int(width * ratio)

    return draw


def zoomed(bounds: Sequence[float]) -> Draws:
    """The draws of ``RandomZoomOut``: the padding."""

    def draw(tape: Tape, height: int, width: int) -> list[int]:
        ratio = _float32(tape, bounds)
        more = int(width * ratio) - width, int(height * ratio) - height
        left, top = (int(each * torch.tensor(tape.uniform((0.0, 1.0)), device="cpu")) for each in more)
        return [left, top, more[0] - left, more[1] - top]

    return draw
