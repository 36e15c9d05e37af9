"""Compositions of transforms that came before, and their programs, which are found again within microseconds."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import is_
from typing import Any

from torchvision import transforms as v1

from accel.hooks.compiled import program, stock
from accel.hooks.compiled.guard import Guard
from accel.hooks.compiled.program import Program
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms.fixed import RGB, ImageKind
from accel.hooks.compiled.transforms.known import TRANSFORMS

AGAIN = 1024
"""The number of images after which a composition that could not be compiled is tried again."""

_RESTLESS = 8  # changes, besides one per 64 images, after which a composition is no longer compiled


class Composition:
    """A composition of transforms, with its programs and a guard that sees changes.

    Attributes:
        images: how many have come one by one. refused: why these are not compiled until ``images`` reaches ``again``.
        hands_on: whether it returns other inputs beside an image as they are; valid once there is a program.
        parts: if it has no program, because of callables of the user's, the transforms that it had then, and these in
            order, as compositions where they are known.
    """

    def __init__(self, transform: Any) -> None:
        self.transform = weakref.ref(transform, partial(_forget, _known, id(transform)))
        self.images = self.again = self._changes = 0
        self.refused: str | None = None
        self.hands_on = False
        self.parts: tuple[list[Any], list[Any]] | None = None
        self._guard: Guard | None = None
        self._programs: dict[ImageKind, Program] = {}

    def program(self, transform: Any, begin: ImageKind = RGB) -> Program:
        """The prepared program of the transform as it is now, for images that begin as this kind.

        Raises:
            Refused: it has none.
        """
        holds = self._guard is not None and self._guard.holds()
        before = self._programs.get(begin)
        if holds and before is not None:
            return before
        found = program.compiled(transform, begin)
        found.prepare(transform)
        if not holds:
            self._guard = Guard(transform)
            self.hands_on = stock.hands_on(transform)
            self._changes += found is not before  # the clocks of a profile are no change
            self._programs.clear()
        self._programs[begin] = found
        return found

    def of_one(self, transform: Any, begin: ImageKind) -> Program:
        """``program`` for images that come one by one; if it is refused, the next try comes ``AGAIN`` images later."""
        try:
            found = self.program(transform, begin)
            if self._changes > _RESTLESS + self.images // 64:
                raise Refused("it changes all the time")
        except Refused as refused:
            self.refused, self.again = str(refused), self.images + AGAIN
            self.parts = _parts(transform) if type(transform) is v1.Compose else None
            raise
        self.parts = None
        return found

    def parts_of(self, transform: Any) -> list[Any] | None:
        """The parts of the transform as it is now; None if it is run as a whole."""
        if self.parts is None:
            return None
        before, parts = self.parts
        now = transform.transforms
        return parts if len(now) == len(before) and all(map(is_, now, before)) else None


def _parts(transform: v1.Compose) -> tuple[list[Any], list[Any]] | None:
    """See ``Composition.parts``; None if there are no transforms in a row that are known, or none that is not."""
    if type(transform.transforms) is not list:
        return None
    parts: list[Any] = []
    for known, row in groupby(transform.transforms, _is_known):
        several = list(row)
        parts += [v1.Compose(several)] if known and len(several) > 1 else several
    return (list(transform.transforms), parts) if 1 < len(parts) < len(transform.transforms) else None


def _is_known(transform: Any) -> bool:
    with suppress(Refused):
        return bool(stock.leaves(transform, TRANSFORMS))
    return False


_MOST = 256
_known: dict[int, Composition] = {}


def program_of(transform: Any, begin: ImageKind = RGB) -> Program:
    """The prepared program of a transform.

    Raises:
        Refused: it has none.
    """
    try:
        found = of(transform).program(transform, begin)
    except TypeError:  # no transform
        found = program.compiled(transform, begin)
        found.prepare(transform)
    if found.kind.cls is None:
        raise Refused("it makes no tensors")
    return found


def of(transform: Any) -> Composition:
    """The ``Composition`` of a transform, made on the first call.

    Raises:
        TypeError: the object cannot be referred to weakly.
    """
    found = _known.get(id(transform))
    if found is None or found.transform() is not transform:
        if len(_known) >= _MOST:
            _known.clear()
        found = _known[id(transform)] = Composition(transform)
    return found


def _forget(known: dict[int, Composition], number: int, reference: Any) -> None:
    if number in known and known[number].transform is reference:
        del known[number]
