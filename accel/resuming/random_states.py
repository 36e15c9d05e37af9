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

Generators = dict[str, Any]
"""Random generators by their paths, such as "dataset.transform.rng"."""

_python: Any = random.getstate
_numpy: Any = np.random.get_state
EVERYBODYS: Generators = {"torch": torch.default_generator, "python": _python.__self__, "numpy": _numpy.__self__}
"""The global generators, by names that no path has."""

seeds = 0
"""How often ``torch.manual_seed`` was called in this process, while a backend was in force."""


def current(own: Generators) -> States:
    """The states now; ``own``: generators besides the global ones."""
    torchs, python, numpy = EVERYBODYS.values()
    states = {"torch": _of_torch(torchs), "python": _of_python(python), "numpy": _of_legacy_numpy(numpy)}
    return states | {"own": {path: _state_of(generator) for path, generator in own.items()}} if own else states


def restore(states: States, own: Generators) -> None:
    """Set generators to these states.

    Raises:
        ResumeError: a generator among ``own`` has no state, or there is none for a state; nothing was set then.
    """
    saved = states.get("own", {})
    if other := sorted(saved.keys() ^ own.keys()):
        raise ResumeError(f"generators of yours are not where they were: {', '.join(other)}")
    for name, generator in (EVERYBODYS | own).items():
        _kind(generator).put(generator, states[name] if name in EVERYBODYS else saved[name])


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


def _of_python(generator: random.Random) -> list[Any]:
    version, words, gauss = generator.getstate()
    return [version, array("I", words).tobytes(), gauss]


def _to_python(generator: random.Random, state: list[Any]) -> None:
    version, words, gauss = state
    generator.setstate((version, tuple(array("I", words)), gauss))


def _of_numpy(state: Any) -> Any:
    return _mapped(state, np.ndarray, lambda each: [each.dtype.str, each.tobytes()])


def _to_numpy(state: Any) -> Any:
    return _mapped(state, list, lambda each: np.frombuffer(each[1], each[0]).copy())


_last_numpy: tuple[bytes, Any] = (b"", None)


def _of_legacy_numpy(generator: np.random.RandomState) -> Any:
    """The state, which takes NumPy 40 µs; of the global one, the last if its memory has not changed since.

    (Nothing but a normal number that is kept for the next call can be used without changing it.)
    """
    global _last_numpy
    bits = getattr(np.random, "get_bit_generator", lambda: None)()  # absent from NumPy's types
    memory = _words(bits) if generator is EVERYBODYS["numpy"] else b""
    before, state = _last_numpy
    if not memory or memory != before or state["has_gauss"]:
        state = _of_numpy(generator.get_state(legacy=False))
        _last_numpy = (memory, state) if memory else _last_numpy
    return state


def _words(bits: Any) -> bytes:
    """The 624 words, and the place among them, of NumPy's own kind of bit generator; nothing for others."""
    if type(bits) is not np.random.MT19937:
        return b""
    place = bits.ctypes.state_address
    return ctypes.string_at(place, 4 * 625)


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
        arguments = literal_eval(state) if isinstance(state, str) else state
        value = count(*(arguments if isinstance(arguments, tuple) else (arguments,)))
        setattr(self.holder, self.name, value if isinstance(state, str) else state)


_KINDS = (
    _Kind(Listed, Listed.take, Listed.put),
    _Kind(torch.Generator, _of_torch, lambda each, state: each.set_state(_tensor(state))),
    _Kind(random.Random, _of_python, _to_python),
    _Kind(np.random.Generator, lambda each: _of_numpy(each.bit_generator.state), _put_bits),
    _Kind(np.random.RandomState, _of_legacy_numpy, lambda each, state: each.set_state(_to_numpy(state))),
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
        seen = set(map(id, EVERYBODYS.values()))
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
    """What a function of the user's refers to: variables of its closure, default values, and numbers and
    generators among the globals of its module."""
    if function.__module__.partition(".")[0] in LIBRARIES:
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{path}.{name}", cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    yield from ((f"{path}.{number}", each) for number, each in enumerate(function.__defaults__ or ()))
    for name in function.__code__.co_names:
        each = function.__globals__.get(name)
        if type(each) is int or isinstance(each, tuple(kind.cls for kind in _KINDS)):
            yield f"{path}.{name}", each


LIBRARIES = frozenset(("torch", "torchvision", "PIL", "numpy", "accel"))
"""Whose functions refer to nothing of the user's."""


# -- as a checkpoint holds them ----------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value with its bytes as uint8 tensors, which ``torch.load(weights_only=True)`` reads."""
    return _mapped(value, bytes, lambda each: _tensor(each) if each else torch.empty(0, dtype=torch.uint8))


def of_plain(value: Any) -> Any:
    """The value that ``plain`` was given; its tensors may have been moved to a device since."""
    return _mapped(value, torch.Tensor, lambda each: each.cpu().numpy().tobytes())


def _mapped(value: Any, kind: type, convert: Callable[[Any], Any]) -> Any:
    """A value with all of a kind converted, in dictionaries, lists and tuples as well."""
    if isinstance(value, kind):
        return convert(value)
    if isinstance(value, dict):
        return {key: _mapped(each, kind, convert) for key, each in value.items()}
    return type(value)([_mapped(each, kind, convert) for each in value]) if type(value) in (list, tuple) else value
