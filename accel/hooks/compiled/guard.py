"""Checks that a composition, and what its work depends on, is unchanged: made for every image, so they are cheap.

``stock`` finds out whether everything is as torchvision made it, and makes a key of it. A guard only sees whether
anything has changed since, and errs on the side of change.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from operator import attrgetter, is_, itemgetter
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module
from torchvision.transforms import v2

from accel.hooks.compiled import stock
from accel.system import arithmetic
from accel.system.private_names import private

_registry = private("torchvision.transforms.v2.functional._utils", "_KERNEL_REGISTRY")


def settings() -> bool:
    """Whether torch's settings that transforms depend on are the usual ones."""
    return stock.usual() and not any(_GLOBAL_HOOKS) and not arithmetic.autocasts()


_GLOBAL_HOOKS = [hooks for name in stock.GLOBAL_HOOKS if (hooks := getattr(module, name, None)) is not None]


class Guard:
    """The state of a composition when this was made: its transforms and those in them, their classes, torchvision's
    functions.

    Args:
        transform: the composition, in which ``stock.leaves`` has found nothing unusual.
    """

    def __init__(self, transform: Any) -> None:
        self._instances: list[Any] = []
        self._gets: list[Any] = []
        self._lists: list[tuple[Any, tuple[Any, ...]]] = []
        self._tensors: list[tuple[torch.Tensor, Any]] = []
        self._empty: list[Any] = []
        self._watch(transform, visited := set[int]())
        for cls in {type(each) for each in self._instances}:
            self._watch(getattr(cls, "_AUGMENTATION_SPACE", None), visited)
        self._types = [type(each) for each in self._instances]
        self._lengths = [len(each.__dict__) for each in self._instances]
        self._attributes = self._now([*map(_content, self._instances)])
        classes = [*{base: None for cls in self._types for base in cls.__mro__ if base is not object}]
        of_v2, mentioned = any(issubclass(cls, v2.Transform) for cls in classes), _mentioned(tuple(classes))
        watched = _watched(classes, of_v2, mentioned)
        self._named = [_getter(owner, names) for owner, names in watched.items() if names]
        self._names = [get(owner) for get, owner in self._named]
        self._functions = [*dict.fromkeys(_functions(watched))]
        self._codes = [*map(_code, self._functions)]
        self._contents = [*map(vars, classes)]
        self._counts = [*map(len, self._contents)]
        used = [each for each in _registry._KERNEL_REGISTRY if of_v2 and each.__name__ in mentioned]
        self._functionals = itemgetter(*used, *used[-1:]) if used else None
        self._kernels = self._kernels_now()

    def holds(self) -> bool:
        """Whether nothing has changed."""
        try:
            instances = self._instances
            if (
                not settings()
                or [get(owner) for get, owner in self._named] != self._names
                or [*map(_code, self._functions)] != self._codes
                or self._kernels_now() != self._kernels
                or [*map(len, self._contents)] != self._counts
                or [*map(type, instances)] != self._types
                or [*map(len, contents := [*map(_content, instances)])] != self._lengths
                or not all(map(is_, self._now(contents), self._attributes))
            ):
                return False
            for values, known in self._lists:
                if len(values) != len(known) or not all(map(is_, values, known)):
                    return False
            for tensor, known in self._tensors:
                if tensor.tolist() != known:
                    return False
        except (AttributeError, KeyError, TypeError):
            return False
        return not any(self._empty)

    def _kernels_now(self) -> list[Any]:
        """The kernels of v2's functions that may be called."""
        get = self._functionals
        return [*map(tuple, map(dict.values, get(_registry._KERNEL_REGISTRY)))] if get is not None else []

    def _now(self, contents: list[Any]) -> list[Any]:
        """The values of all transforms' attributes, in order; ``contents``: their dictionaries."""
        return [value for get, own in zip(self._gets, contents, strict=True) for value in get(own)]

    def _watch(self, value: Any, visited: set[int]) -> None:
        """Note the content of a value that can change while it stays the same object."""
        if id(value) in visited or isinstance(value, Enum):
            return
        visited.add(id(value))
        inner: Iterable[Any] = ()
        if isinstance(value, (list, tuple)):
            self._lists += [(value, tuple(value))] if isinstance(value, list) else []
            inner = value
        elif isinstance(value, dict) and not value:
            self._empty.append(value)
        elif isinstance(value, dict):
            self._watch_attributes(_Holder(value), list(value))
            inner = value.values()
        elif isinstance(value, torch.Tensor):
            self._tensors.append((value, value.tolist()))
        elif isinstance(value, nn.Module) or type(value).__module__.startswith("torchvision.transforms"):
            own, left_out = vars(value), _UNWATCHED if isinstance(value, nn.Module) else ()
            names = [name for name in own if name not in left_out]
            self._watch_attributes(value, names)
            inner = [own[name] for name in names]
        for each in inner:
            self._watch(each, visited)

    def _watch_attributes(self, holder: Any, names: list[Any]) -> None:
        self._instances.append(holder)
        self._gets.append(itemgetter(*names, *names[-1:]) if names else tuple)  # the last one twice: always a tuple


_content = attrgetter("__dict__")


class _Holder:
    """An object whose attributes are a dictionary's items."""

    def __init__(self, content: dict[Any, Any]) -> None:
        self.__dict__ = content


_UNWATCHED = stock.OF_MODULES - {"_modules", *stock.HOOKS}


def _watched(classes: Sequence[type], of_v2: bool, mentioned: Container[str]) -> dict[Any, list[str]]:
    """Classes and modules, and the names in them that the work of transforms of these classes depends on."""
    watched: dict[Any, list[str]] = {cls: [name for name in stock.METHODS if name in vars(cls)] for cls in classes}
    for owner, names in stock.called():
        if owner is not v2.functional or of_v2:  # v1's transforms call none of its functions
            watched.setdefault(owner, []).extend(name for name in names if name in mentioned)
    return watched


def _getter(owner: Any, names: list[str]) -> tuple[Any, Any]:
    """A function that gets these attributes of an owner, and what to give it: its dictionary, if it has all of them."""
    twice = *names, names[0]  # for one name it would return no tuple
    own = vars(owner)
    return (itemgetter(*twice), own) if own.keys() >= {*names} else (attrgetter(*twice), owner)


def _functions(watched: Mapping[Any, Sequence[str]]) -> Iterator[FunctionType]:
    """The functions, written in Python, among attributes of these names."""
    for owner, names in watched.items():
        yield from [found for name in names if type(found := getattr(owner, name)) is FunctionType]


_code = attrgetter("__code__")


@cache
def _mentioned(classes: tuple[type, ...]) -> frozenset[str]:
    """All names in the code of the classes, in the code of torchvision's functions with these names, and so on.

    Every function that is called has its name somewhere in them.
    """
    graph = _graph()
    ahead = {name for cls in classes for function in vars(cls).values() for name in _names(function)}
    found: set[str] = set()
    while ahead:
        found |= ahead
        ahead = {name for each in ahead for name in graph.get(each, ())} - found
    return frozenset(found)


def _graph() -> dict[str, set[str]]:
    """The names in the code of torchvision's functions, by the functions' names."""
    found: dict[str, set[str]] = {}
    for name, content in tuple(sys.modules.items()):
        if name.startswith("torchvision.transforms") and content is not None:
            for own, function in vars(content).items():
                found.setdefault(own, set()).update(_names(function))
    for functional, kernels in _registry._KERNEL_REGISTRY.items():
        for kernel in kernels.values():
            names = {getattr(kernel, "__name__", ""), *_names(kernel)}
            found.setdefault(functional.__name__, set()).update(names)
    return found


def _names(function: Any) -> Iterator[str]:
    """The names in a function's code, and in that of the functions it wraps; none for other objects."""
    function = getattr(function, "__func__", function)
    while isinstance(function, FunctionType):
        ahead = [function.__code__]
        while ahead:
            code = ahead.pop()
            yield from (*code.co_names, *code.co_freevars)
            ahead += [each for each in code.co_consts if isinstance(each, CodeType)]
        function = getattr(function, "__wrapped__", None)
