"""Reversible replacements of other people's names: the mechanics, without saying which names.

Each function makes one change and returns the function that takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from types import CodeType, FunctionType
from typing import Any

Undo = Callable[[], None]


def attribute(owner: Any, name: str, value: Any) -> Undo:
    """Set ``owner.name``.

    Raises:
        AttributeError: there is no such name to replace.
    """
    original = owner.__dict__[name] if isinstance(owner, type) and name in owner.__dict__ else getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, original)


def item(mapping: MutableMapping[Any, Any], key: Any, value: Any) -> Undo:
    """Set ``mapping[key]``; taking it back removes a key that was new."""
    if key in mapping:
        original = mapping[key]
        mapping[key] = value
        return lambda: mapping.__setitem__(key, original)
    mapping[key] = value
    return lambda: mapping.__delitem__(key)


def body(function: FunctionType, make: Callable[[FunctionType], Callable[..., Any]]) -> Undo:
    """Make ``function`` run ``make(original)``, where ``original`` behaves as the function did before.

    The function object stays, so names bound early (``from torchvision... import to_tensor``) change as well;
    and ``__wrapped__`` keeps its source and signature visible to TorchScript and ``inspect``.
    """
    code = function.__code__
    original = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    original.__kwdefaults__ = function.__kwdefaults__
    original.__dict__.update(function.__dict__)
    original.__annotations__ = function.__annotations__
    original.__qualname__, original.__module__ = function.__qualname__, function.__module__
    function.__code__ = _calling(make(original), code)
    function.__wrapped__ = original  # type: ignore[attr-defined]

    def undo() -> None:
        function.__code__ = code
        del function.__wrapped__  # type: ignore[attr-defined]

    return undo


_PLACE = 749_321_577  # stands where the callable goes among the template's constants


def _template(*args: Any, **kwargs: Any) -> Any:
    function: Any = 749_321_577
    return function(*args, **kwargs)


def _calling(function: Callable[..., Any], like: CodeType) -> CodeType:
    """Code that passes its arguments on to ``function``; a code object reaches nothing but its constants."""
    template = _template.__code__
    constants = tuple(function if constant == _PLACE else constant for constant in template.co_consts)
    return template.replace(
        co_consts=constants,
        co_name=like.co_name,
        co_filename=like.co_filename,
        co_firstlineno=like.co_firstlineno,
    )
