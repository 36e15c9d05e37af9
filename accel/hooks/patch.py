"""Reversible replacements of other people's names: the mechanics, without saying which names.

Each function makes one change and returns the function that takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from types import FunctionType
from typing import Any

Undo = Callable[[], None]


def attribute(owner: Any, name: str, value: Any) -> Undo:
    """Set ``owner.name``. What somebody else has put in its place since then is not taken back.

    Raises:
        AttributeError: there is no such name to replace.
    """
    original = owner.__dict__[name] if isinstance(owner, type) and name in owner.__dict__ else getattr(owner, name)
    setattr(owner, name, value)

    def undo() -> None:
        if vars(owner).get(name) is value:
            setattr(owner, name, original)

    return undo


def item(mapping: MutableMapping[Any, Any], key: Any, value: Any) -> Undo:
    """Set ``mapping[key]``; taking it back removes a key that was new.

    What somebody else has put in its place since then is not taken back.
    """
    was = key in mapping
    original = mapping.get(key)
    mapping[key] = value

    def undo() -> None:
        if mapping.get(key) != value:  # os.environ gives others, that are equal
            return
        if was:
            mapping[key] = original
        else:
            del mapping[key]

    return undo


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
    defaults = function.__kwdefaults__
    function.__kwdefaults__ = {**(defaults or {}), _INSTEAD: make(original)}
    try:
        function.__code__ = _template.__code__.replace(
            co_name=code.co_name, co_filename=code.co_filename, co_firstlineno=code.co_firstlineno
        )
    except ValueError:  # a closure's code cannot be replaced
        function.__kwdefaults__ = defaults
        raise
    function.__wrapped__ = original  # type: ignore[attr-defined]

    def undo() -> None:
        function.__code__ = code
        function.__kwdefaults__ = defaults
        del function.__wrapped__  # type: ignore[attr-defined]

    return undo


def _template(*args: Any, _accel_instead: Any, **kwargs: Any) -> Any:
    # A default argument is the one place where code finds an object that TorchScript and torch.compile accept.
    return _accel_instead(*args, **kwargs)


_INSTEAD = "_accel_instead"
