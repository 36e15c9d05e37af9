"""Reversible replacements of names in other libraries: how a name is found, replaced and put back.

Each file of ``accel.hooks`` ends with ``PATCHES``: a row for every name that it replaces. The row's class says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial, wraps
from importlib import import_module
from operator import attrgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any

Undo = Callable[[], None]
Function = Callable[..., Any]

ABSENT: Any = object()
"""Stands for the original of a name that did not exist."""


@dataclass(frozen=True)
class Patch:
    """A name of Pillow's, torch's, torchvision's or Python's, and its replacement.

    Attributes:
        name: the dotted name, including the module.
        replacement: a function whose meaning depends on the row's class.
    """

    name: str
    replacement: Function

    def find(self) -> Any:
        """Find where the replacement goes; raises AttributeError if the installed version lacks the name."""
        return found(self.name)

    def put(self, place: Any) -> Undo:
        """Put the replacement in the place that ``find`` returned, and return a function that undoes it."""
        raise NotImplementedError


class Body(Patch):
    """A function that runs the replacement, called with the original first; names bound early change as well."""

    def put(self, place: Any) -> Undo:
        return _function(self.name, place, lambda original: partial(self.replacement, original))


class Shortcut(Patch):
    """A function that runs ``replacement(original)``; names bound early change as well."""

    def put(self, place: Any) -> Undo:
        return _function(self.name, place, self.replacement)


class Attribute(Patch):
    """An attribute of a module or a class that becomes ``replacement(original)``."""

    def find(self) -> Any:
        owner, _, name = self.name.rpartition(".")
        place = found(owner)
        return place, name, getattr(place, name)

    def put(self, place: Any) -> Undo:
        owner, name, original = place
        return attribute(owner, name, self.replacement(original))


class Addition(Attribute):
    """An attribute that a class gets, ``replacement(ABSENT)``; one of that name that it has already stays."""

    def find(self) -> Any:
        owner, _, name = self.name.rpartition(".")
        place = found(owner)
        return place, name, vars(place).get(name, ABSENT)

    def put(self, place: Any) -> Undo:
        return super().put(place) if place[2] is ABSENT else lambda: None


@dataclass(frozen=True)
class Item(Patch):
    """An item of a mapping, found by one or several ``keys``, that becomes ``replacement(original or ABSENT)``.

    The mapping stays as it is if the replacement returns ``ABSENT``.
    """

    keys: tuple[Any, ...] = ()

    def put(self, place: Any) -> Undo:
        for key in self.keys[:-1]:
            place = place[key]
        value = self.replacement(place.get(self.keys[-1], ABSENT))
        return (lambda: None) if value is ABSENT else item(place, self.keys[-1], value)


def found(name: str) -> Any:
    """The object with a dotted name; its module is imported."""
    root, _, path = name.partition(".")
    module = import_module(root)
    return attrgetter(path)(module) if path else module


def attribute(owner: Any, name: str, value: Any) -> Undo:
    """Set ``owner.name`` and return a function that undoes it."""
    return _put(vars(owner), name, value, partial(setattr, owner), partial(delattr, owner))


def item(mapping: MutableMapping[Any, Any], key: Any, value: Any) -> Undo:
    """Set ``mapping[key]`` and return a function that undoes it."""
    return _put(mapping, key, value, mapping.__setitem__, mapping.__delitem__)


def _put(contents: Mapping[Any, Any], key: Any, value: Any, put: Function, remove: Function) -> Undo:
    """Put a value in place; undoing it removes a key that was new.

    A value that other code has put in its place since then is left there.
    """
    original = contents.get(key, ABSENT)
    put(key, value)

    def undo() -> None:
        if contents.get(key) != value:  # by equality: os.environ returns other objects
            return
        if original is ABSENT:
            remove(key)
        else:
            put(key, original)

    return undo


def copied(function: FunctionType, surroundings: dict[str, Any]) -> FunctionType:
    """A copy of a function with other globals."""
    copy = FunctionType(function.__code__, surroundings, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _function(name: str, function: Any, make: Callable[[Any], Function]) -> Undo:
    """Replace a function's body; or its name in the module, if others put a closure or another object there."""
    owner, _, last = name.rpartition(".")
    if not isinstance(function, FunctionType) or function.__code__.co_freevars:
        place = found(owner)
        if isinstance(place, ModuleType):
            instead = make(function)

            @wraps(function)
            def replacing(*args: Any, **kwargs: Any) -> Any:
                return instead(*args, **kwargs)

            return attribute(place, last, replacing)
    return body(function, make)


def body(function: FunctionType, make: Callable[[FunctionType], Function]) -> Undo:
    """Make ``function`` run ``make(original)``, where ``original`` behaves as the function did before.

    The function object stays, so names bound early (``from torchvision... import to_tensor``) change as well;
    and ``__wrapped__`` keeps its source and signature visible to TorchScript and ``inspect``.
    """
    code = function.__code__
    original = copied(function, function.__globals__)
    original.__dict__.update(function.__dict__)
    original.__annotations__ = function.__annotations__
    original.__qualname__, original.__module__ = function.__qualname__, function.__module__
    defaults, instead = function.__kwdefaults__, make(original)
    if isinstance(instead, FunctionType):
        instead.__qualname__ = function.__qualname__  # shown in the message of a wrong call
    function.__kwdefaults__ = {**(defaults or {}), "_accel_instead": instead}
    try:
        function.__code__ = _template.__code__.replace(**{name: getattr(code, name) for name in _NAMES})
    except ValueError:  # a closure's code cannot be replaced
        function.__kwdefaults__ = defaults
        raise
    unwrap = attribute(function, "__wrapped__", original)

    def undo() -> None:
        function.__code__ = code
        function.__kwdefaults__ = defaults
        unwrap()

    return undo


_NAMES = [name for name in ("co_name", "co_qualname", "co_filename", "co_firstlineno") if hasattr(CodeType, name)]
"""The attributes of code that tracebacks and messages show; Python 3.10 has no ``co_qualname``."""


def _template(*args: Any, _accel_instead: Any, **kwargs: Any) -> Any:
    # A default argument is the one place where code finds an object that TorchScript and torch.compile accept.
    return _accel_instead(*args, **kwargs)
