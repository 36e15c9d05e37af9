"""Finding lazy tensors in a batch of any structure, without taking it apart."""

from __future__ import annotations

import copyreg
import types
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from PIL import Image

from accel.lazy.state import pending
from accel.lazy.tensor_base import LazyTensorBase, pending_state

_LEAVES = frozenset((int, float, bool, complex, str, bytes, bytearray, type(None), range, slice, torch.Tensor))
_OTHER_LEAVES = (torch.Tensor, np.generic, str, bytes, Image.Image, type, types.ModuleType, types.FunctionType)
_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, deque)
_DEEP = 4


def lazy_tensors(value: Any, *, sent: bool = False) -> list[LazyTensorBase]:
    """The lazy tensors in a value, in order; one that occurs several times is listed several times.

    They are looked for in Python's containers and their subclasses, and in the attributes of objects that are not too
    deep inside. With ``sent``, those that would be sent along with the value to another process are found as well:
    objects are pickled for that, unless all existing lazy tensors have been found already.
    """
    expected = pending()
    found: list[LazyTensorBase] = []
    if not expected:
        return found
    states: set[int] = set()
    seen: set[int] = set()
    objects: list[Any] = []
    levels: list[Iterator[Any]] = [iter((value,))]
    while levels:
        for part in levels[-1]:
            if type(part) in _LEAVES:
                continue
            if isinstance(part, LazyTensorBase):
                lazy = pending_state(part)
                if lazy is not None:
                    found.append(part)
                    states.add(id(lazy))
                continue
            if len(states) == expected or id(part) in seen or isinstance(part, _OTHER_LEAVES):
                continue
            seen.add(id(part))
            if not isinstance(part, _CONTAINERS):
                objects.append(part)
            parts = _parts(part, len(levels) <= _DEEP)
            if not _LEAVES.issuperset(map(type, parts)):
                levels.append(iter(parts))
                break
        else:
            levels.pop()
    if sent and objects and len(states) < expected:
        found += [tensor for tensor in sent_along(objects) if id(pending_state(tensor)) not in states]
    return found


def _parts(value: Any, attributes: bool) -> Iterable[Any]:
    """The items of a container, found without methods of the user's, and the values of an object's attributes."""
    if type(value) in (list, tuple):
        return value  # type: ignore[no-any-return]
    parts: Iterable[Any] = ()
    for kind in _CONTAINERS:
        if isinstance(value, kind):
            parts = dict.values(value) if kind is dict else kind.__iter__(value)  # type: ignore[attr-defined,arg-type]
    own: dict[str, Any] = {}
    if attributes and not isinstance(value, np.ndarray):
        with suppress(AttributeError):
            own = object.__getattribute__(value, "__dict__")
    return tuple(chain(parts, own.values()))


# -- in objects whose content only their own pickling shows ------------------------------------------------


def sent_along(leaves: Sequence[Any]) -> list[LazyTensorBase]:
    """The lazy tensors that would be sent along with objects that are not torch's, NumPy's or Python's own values.

    They are found by pickling these objects, as the queue will. Objects with their own reduction for other processes
    (storages, connections, ...) are skipped: it would move them, or keep a descriptor open.
    """
    finder = _Finder()
    for leaf in leaves:
        with suppress(Exception):  # the queue raises for objects that cannot be sent
            finder.dump(leaf)
    return finder.found


class _Finder(ForkingPickler):
    """A pickler that writes nothing and skips the values of tensors, arrays and pictures."""

    def __init__(self) -> None:
        super().__init__(_Nowhere())
        self.found: list[LazyTensorBase] = []

    def reducer_override(self, value: Any) -> Any:
        if pending_state(value) is not None:
            self.found.append(value)
        kind = type(value)
        sent = kind in self.dispatch_table and kind not in copyreg.dispatch_table
        holds_numbers = isinstance(value, np.ndarray) and not value.dtype.hasobject
        if sent or holds_numbers or isinstance(value, (torch.Tensor, Image.Image)):
            return str, ()
        return NotImplemented


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)
