"""The states of random generators as plain data: those that everybody uses, and those of the user's that are found."""

from __future__ import annotations

import ctypes
import random
from array import array
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from accel.errors import ResumeError

States = dict[str, Any]
"""The states of torch's, Python's and NumPy's global generators, and under "own" those of others, by their paths.

They are bytes, numbers, strings and containers of them, which ``plain`` makes fit for any checkpoint."""

Generators = Mapping[str, Any]
"""Random generators by their paths, such as "dataset.transform.rng"."""


seeds = 0
"""How often ``torch.manual_seed`` was called in this process, while a backend was in force."""


def current(own: Generators) -> States:
    """The states now; ``own``: generators besides the global ones."""
    states: States = {
        "torch": _of_torch(torch.default_generator),
        "python": _of_python(random.getstate()),
        "numpy": _of_global_numpy(),
    }
    if own:
        states["own"] = {path: _state_of(generator) for path, generator in own.items()}
    return states


def restore(states: States, own: Generators) -> None:
    """Set generators to these states.

    Raises:
        ResumeError: a generator among ``own`` has no state, or there is none for a state; nothing was set then.
    """
    saved = states.get("own", {})
    if other := sorted(saved.keys() ^ own.keys()):
        raise ResumeError(f"generators of yours are not where they were: {', '.join(other)}")
    torch.default_generator.set_state(_tensor(states["torch"]))
    random.setstate(_to_python(states["python"]))
    np.random.set_state(_to_numpy(states["numpy"]))  # noqa: NPY002
    for path, generator in own.items():
        _kind(generator).put(generator, saved[path])


# -- generators of the user's ------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """How the state of a class of generators is taken and put back."""

    cls: type
    take: Callable[[Any], Any]
    put: Callable[[Any, Any], object]


def _tensor(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def _of_torch(generator: torch.Generator) -> bytes:
    return generator.get_state().numpy().tobytes()


def _of_python(state: Any) -> list[Any]:
    version, words, gauss = state
    return [version, array("I", words).tobytes(), gauss]


def _to_python(state: list[Any]) -> Any:
    version, words, gauss = state
    return version, tuple(array("I", words)), gauss


def _of_numpy(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _of_numpy(value) for key, value in state.items()}
    return [state.dtype.str, state.tobytes()] if isinstance(state, np.ndarray) else state


def _to_numpy(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _to_numpy(value) for key, value in state.items()}
    return np.frombuffer(state[1], state[0]).copy() if isinstance(state, list) else state


_last_numpy: tuple[bytes, Any] = (b"", None)


def _of_global_numpy() -> Any:
    """The state of NumPy's global generator, which takes NumPy 40 µs: the last one if its memory has not changed since.

    (Nothing but a normal number that is kept for the next call can be used without changing it.)
    """
    global _last_numpy
    memory = _memory(_numpy.get_bit_generator())
    before, state = _last_numpy
    if not memory or memory != before or state["has_gauss"]:
        state = _of_numpy(np.random.get_state(legacy=False))  # noqa: NPY002
        _last_numpy = memory, state
    return state


def _memory(bits: Any) -> bytes:
    """The memory that has the state of NumPy's own kind of bit generator; nothing for others."""
    if type(bits) is not np.random.MT19937:
        return b""
    place = bits.ctypes.state_address
    return ctypes.string_at(place, 4 * _WORDS + 4)


_WORDS = 624
_numpy: Any = np.random  # whose types lack a name


def _put_bits(generator: Any, state: Any) -> None:
    generator.bit_generator.state = _to_numpy(state)


class Listed(NamedTuple):
    """An attribute of an object of the user's that is listed to be restored."""

    holder: Any
    name: str

    def take(self) -> Any:
        """Its value, an integer; of an ``itertools.count``, its arguments as text."""
        value = getattr(self.holder, self.name)
        if not isinstance(value, (int, count)):
            raise TypeError(f"{self.name} is of type {type(value).__name__}")
        return repr(value)[5:] if isinstance(value, count) else int(value)

    def put(self, state: Any) -> None:
        """Set it."""
        arguments = literal_eval(state) if isinstance(state, str) else state
        value = count(*(arguments if isinstance(arguments, tuple) else (arguments,)))
        setattr(self.holder, self.name, value if isinstance(state, str) else state)


_KINDS = (
    _Kind(Listed, Listed.take, Listed.put),
    _Kind(torch.Generator, _of_torch, lambda each, state: each.set_state(_tensor(state))),
    _Kind(
        random.Random, lambda each: _of_python(each.getstate()), lambda each, state: each.setstate(_to_python(state))
    ),
    _Kind(np.random.Generator, lambda each: _of_numpy(each.bit_generator.state), _put_bits),
    _Kind(
        np.random.RandomState,
        lambda each: _of_numpy(each.get_state(legacy=False)),
        lambda each, state: each.set_state(_to_numpy(state)),
    ),
)


def _kind(value: Any) -> _Kind:
    return next(kind for kind in _KINDS if isinstance(value, kind.cls))


def _state_of(generator: Any) -> Any:
    return _kind(generator).take(generator)


LONGEST, DEEPEST, MOST = 1000, 6, 20_000
"""The most items of a container that is looked into, the deepest level, and the most objects that are looked at."""


class Found:
    """What a search has found in objects: attributes, items, and what functions and methods refer to.

    Attributes:
        generators: random generators whose states can be saved, and attributes that the user has listed.
    """

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.generators: dict[str, Any] = {}
        self._roots, self._others, self._integers = roots, list[str](), dict[str, int]()
        seen = {id(torch.default_generator), id(getattr(random, "_inst", None))}
        level = list(roots.items())
        for _ in range(DEEPEST + 1):
            inner: list[tuple[str, Any]] = []
            for path, value in level:
                if type(value) is int and len(self._integers) < MOST:
                    self._integers[path] = value
                if type(value) in _LEAVES or id(value) in seen or len(seen) > MOST:
                    continue
                seen.add(id(value))
                if isinstance(value, tuple(kind.cls for kind in _KINDS)):
                    try:
                        _state_of(value)
                        self.generators[path] = value
                    except Exception:
                        self._others.append(f"{path} ({type(value).__name__})")
                elif type(value).__name__ in _NAMED:
                    self._others.append(f"{path} ({type(value).__name__})")
                else:
                    with suppress(Exception):  # of the user's own classes
                        inner += _parts(path, value)
            level = inner

    def unrestored(self, batches: int) -> tuple[str, ...]:
        """Paths and types of what draws or counts and is not restored; ``batches``: how many were made since the
        search. From the second on, integers that have changed are among them."""
        if batches > 1 and self._integers:
            now, before = Found(self._roots)._integers, self._integers
            self._others += [f"{path} (int)" for path, value in now.items() if before.get(path, value) != value]
            self._integers = {}
        return tuple(self._others)


_LEAVES = frozenset(
    (int, float, bool, complex, str, bytes, bytearray, type(None), range, slice, torch.Tensor, np.ndarray)
)
LIST = "accel_restores"
"""An attribute of an object of the user's, or of its class: names of its attributes that count and are restored."""
_NAMED = frozenset(("count", "cycle", "generator"))
"""Python's iterators that keep a place which cannot be saved."""


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple, set, frozenset)):
        if len(value) <= LONGEST and not isinstance(value, (set, frozenset)):
            yield from ((f"{path}[{number}]", each) for number, each in enumerate(value))
    elif isinstance(value, dict):
        if len(value) <= LONGEST:
            yield from ((f"{path}[{key!r}]", each) for key, each in value.items() if isinstance(key, (str, int)))
    elif isinstance(value, MethodType):
        yield f"{path}.__self__", value.__self__
        yield f"{path}.__func__", value.__func__
    elif isinstance(value, FunctionType):
        yield from _of_function(path, value)
    elif isinstance(value, partial):
        yield from ((f"{path}.{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif not isinstance(value, (type, ModuleType)):
        own = object.__getattribute__(value, "__dict__")
        listed = own.get(LIST, getattr(type(value), LIST, ()))
        yield from ((f"{path}.{name}", Listed(value, name)) for name in listed)
        yield from (
            (f"{path}.{name}", each) for name, each in own.items() if name not in listed and len(own) <= LONGEST
        )
        for name in ("__getitem__", "__iter__", "__call__", "forward"):
            method = getattr(type(value), name, None)
            if isinstance(method, FunctionType):
                yield from _of_function(f"{path}.{name}", method)


def _of_function(path: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function of the user's refers to: variables of its closure, default values, and globals of its module."""
    if function.__module__.partition(".")[0] in _LIBRARIES:
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{path}.{name}", cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    yield from ((f"{path}.{number}", each) for number, each in enumerate(function.__defaults__ or ()))
    for name in function.__code__.co_names:
        each = function.__globals__.get(name)
        if isinstance(each, tuple(kind.cls for kind in _KINDS)):
            yield f"{path}.{name}", each


_LIBRARIES = frozenset(("torch", "torchvision", "PIL", "numpy", "accel"))


# -- as a checkpoint holds them ----------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value with its bytes as uint8 tensors, which ``torch.load(weights_only=True)`` reads."""
    if isinstance(value, bytes):
        return _tensor(value) if value else torch.empty(0, dtype=torch.uint8)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return type(value)([plain(each) for each in value]) if type(value) in (list, tuple) else value


def of_plain(value: Any) -> Any:
    """The value that ``plain`` was given; its tensors may have been moved to a device since."""
    if isinstance(value, torch.Tensor):
        return value.cpu().numpy().tobytes()
    if isinstance(value, dict):
        return {key: of_plain(each) for key, each in value.items()}
    return type(value)([of_plain(each) for each in value]) if type(value) in (list, tuple) else value
