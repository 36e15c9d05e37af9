"""Programs: what a composition of torchvision's transforms draws and records, found out once for all images."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from accel.hooks.compiled import draws, known, stock
from accel.hooks.compiled.draws import Op, Piece, Run, Size
from accel.hooks.compiled.fixed import RGB, Fixed, Kind
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.tape import Tape
from accel.recipe import Recipe, Source
from accel.rows import Form, Rows


class Program:
    """What a composition of transforms draws and records.

    Attributes:
        trusted: whether it did what the transforms do; None: not tried yet. most: so many draws an image may take.
    """

    def __init__(self, transforms: Sequence[Any], given: Sequence[known.Attributes]) -> None:
        self.trusted: bool | None = None
        self.ops: list[Op] = []
        self._usual = 8
        self._transforms, self._given = copy.deepcopy(list(transforms)), given
        self.kind: Kind | None = None

    def _build(self, size: Size) -> None:
        """Make it; ``size``: of an image to try it on."""
        kind = RGB
        ops: list[Op] = []
        parts = zip(self._transforms, self._given, strict=True)
        for drawing, group in groupby(parts, lambda part: known.DRAWING.get(type(part[0]))):
            if drawing is None:
                ops.append(op := Fixed([transform for transform, _ in group], kind))
                kind = op.tried(size)
            else:
                for transform, given in group:
                    made, kind = drawing[1](transform, given, kind)
                    ops += made
        self.kind, self.ops = kind, ops
        if self.kind.cls is None:
            raise Refused("it makes no tensors")

    def run(
        self, sizes: Sequence[Size], grey: Sequence[bool], state: torch.Tensor
    ) -> tuple[list[Run], list[Size], Tape]:
        """Draw for images of these sizes, from a state of torch's generator on.

        Raises:
            Refused: that is left to torchvision.
        """
        if not self.ops:
            self._build(sizes[0])
        most = sum(op.most for op in self.ops)
        try:
            return self._run(sizes, grey, Tape(state, len(sizes) * min(self._usual, most) + 1))
        except IndexError:
            return self._run(sizes, grey, Tape(state, len(sizes) * most + 1))

    def _run(self, sizes: Sequence[Size], grey: Sequence[bool], tape: Tape) -> tuple[list[Run], list[Size], Tape]:
        runs, made = [], []
        ops = [op.draw for op in self.ops]
        for (height, width), is_grey in zip(sizes, grey, strict=True):
            run = Run(tape)
            if is_grey:
                run.pieces.append(_TO_RGB)
            for draw in ops:
                height, width = draw(run, height, width)
            runs.append(run)
            made.append((height, width))
        return runs, made, tape


_TO_RGB = Piece(Form("convert", ("RGB",)))


def recipes(sources: Sequence[Source], runs: Sequence[Run]) -> Rows | tuple[Recipe, ...]:
    """What was drawn, as rows where the images have one structure."""
    first = tuple(runs[0].pieces)
    if all(tuple(run.pieces) == first for run in runs):
        return Rows(
            sources, draws.structure(first), np.array([run.row for run in runs], np.int64).reshape(len(runs), -1)
        )
    return tuple(
        [
            Recipe(source, draws.structure(tuple(run.pieces)).steps(run.row))
            for source, run in zip(sources, runs, strict=True)
        ]
    )


def compiled(transform: Any) -> Program:
    """The program of a transform as it is now.

    Raises:
        Refused: it has none.
    """
    stock.surroundings()
    found = stock.leaves(transform, known.NAMES)
    key = tuple([leaf for _, leaf in found])
    program = _programs.get(key)
    if program is None:
        if len(_programs) > _MOST:
            _programs.clear()
        program = _programs[key] = Program([part for part, *_ in found], [dict(values) for _, (_, values, *_) in found])
    if program.trusted is False:
        raise Refused("it did not record what torchvision's transforms do")
    return program


_MOST = 64
_programs: dict[Any, Program] = {}
