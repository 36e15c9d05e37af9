"""Datasets of files that were seen before, with the programs of their transforms: one cheap check for each batch."""

from __future__ import annotations

import weakref
from functools import partial
from operator import is_, itemgetter
from typing import Any

import torchvision
from torchvision.datasets import folder

from accel.hooks import tv_files
from accel.hooks.compiled.guard import Guard
from accel.hooks.compiled.program import Program

METHODS = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
"""Methods of a dataset that must be the usual ones, whatever its class."""

_ALIKE = itemgetter("loader", "transform", "target_transform")
_MODULES = {folder: ("default_loader", "pil_loader"), torchvision: ("get_image_backend", "_image_backend")}


class Folder:
    """A dataset of files, the program of its transform, and the state in which the dataset was then.

    Attributes:
        dataset: a weak reference to it.
    """

    __slots__ = ("_attributes", "_cls", "_count", "_guard", "dataset", "program")

    def __init__(self, dataset: Any, program: Program) -> None:
        """``dataset``: one in which nothing unusual was found."""
        own, cls = vars(dataset), type(dataset)
        self.dataset = weakref.ref(dataset, partial(_forget, _known, id(dataset)))
        self.program = program
        self._cls, self._count, self._attributes = cls, len(own), _ALIKE(own)
        named: dict[Any, list[str]] = {base: [] for base in cls.__mro__ if base is not object}
        for name in METHODS:
            for base in named:  # the first class that has it counts, and the guard sees if one before gets it
                if name in vars(base):
                    named[base].append(name)
                    break
        self._guard = Guard(own["transform"], {**named, **_MODULES})

    def holds(self, dataset: Any) -> bool:
        """Whether the dataset, its transform and what they call are unchanged since this was made."""
        own = dataset.__dict__
        return (
            type(dataset) is self._cls
            and len(own) == self._count
            and own.keys().isdisjoint(METHODS)
            and all(map(is_, _ALIKE(own), self._attributes))
            and tv_files.opens()
            and self._guard.holds()
        )


_MOST = 64
_known: dict[int, Folder] = {}


def known(dataset: Any) -> Program | None:
    """The program of a dataset's transform, if ``keep`` was called for it and nothing has changed since; else None."""
    found = _known.get(id(dataset))
    if found is None or found.dataset() is not dataset:
        return None
    try:
        return found.program if found.holds(dataset) else None
    except KeyError:  # an attribute is gone
        return None


def keep(dataset: Any, program: Program) -> None:
    """Remember a dataset in which nothing unusual was found, and the program of its transform."""
    if len(_known) >= _MOST:
        _known.clear()
    _known[id(dataset)] = Folder(dataset, program)


def _forget(known: dict[int, Folder], number: int, reference: Any) -> None:
    if number in known and known[number].dataset is reference:
        del known[number]
