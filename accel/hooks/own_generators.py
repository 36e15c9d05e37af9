"""Generators of a thread's own, for trials: what torchvision draws in them is taken from nobody else."""

from __future__ import annotations

import copy
import random
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import transforms as v1

from accel.hooks.compiled.stock import Refused
from accel.hooks.patch import copied
from accel.system.timing import clocks


class Own(TorchDispatchMode):
    """A context in which torch draws from another generator than everybody's, in this thread."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator; raises ``Refused`` for one that draws and cannot be given a generator."""
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        if not _takes_generator(func):
            name = "generator" if func._overloadname == "default" else f"{func._overloadname}_generator"
            overload = getattr(func.overloadpacket, name, None)
            if overload is None or not _takes_generator(overload):
                raise Refused(f"{func.overloadpacket} takes no generator, so it cannot be tried")
            func = overload
        return func(*args, **{**(kwargs or {}), "generator": self._generator})


def _takes_generator(func: Any) -> bool:
    return any(argument.name == "generator" for argument in func._schema.arguments)


def with_own(transform: Any, generator: random.Random) -> Any:
    """A copy of a transform in which those that draw from Python's ``random`` draw from this generator."""
    transform = copy.deepcopy(transform)
    ahead = [transform]
    while ahead:
        each = ahead.pop()
        if type(each) in _BY_PYTHON:
            call = type(each).__call__
            call = clocks.originals.get(call, call)
            call = copied(call, {**call.__globals__, "random": generator})
            each.__class__ = type(type(each).__name__, (type(each),), {"__call__": call})
        own = vars(each)
        ahead += [*own.get("_modules", {}).values(), *own.get("transforms", ())]
    return transform


_BY_PYTHON = (v1.RandomChoice, v1.RandomOrder)
