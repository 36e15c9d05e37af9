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

_END = object()


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
        part = next(levels[-1], _END)
        if part is _END:
            levels.pop()
        elif isinstance(part, LazyTensorBase):
            lazy = pending_state(part)
            if lazy is not None:
                found.append(part)
                states.add(id(lazy))
        elif type(part) not in _LEAVES and len(states) < expected and _is_new(part, seen):
            if not isinstance(part, _CONTAINERS):
                objects.append(part)
            levels.append(iter(_parts(part, len(levels) <= _DEEP)))
    if sent and objects and len(states) < expected:
        found += [tensor for tensor in sent_along(objects) if id(pending_state(tensor)) not in states]
    return found


def _is_new(value: Any, seen: set[int]) -> bool:
    """Whether a value may have parts, and was not seen before; then it is."""
    if id(value) in seen or isinstance(value, _OTHER_LEAVES):
        return False
    seen.add(id(value))
    return True


def _parts(value: Any, attributes: bool) -> Iterable[Any]:
    """The items of a container, found without methods of the user's, and the values of an object's attributes.

    None of them if no item has parts.
    """
    if type(value) in (list, tuple):
        return () if _LEAVES.issuperset(map(type, value)) else value
    parts: Iterable[Any] = ()
    for kind in _CONTAINERS:
        if isinstance(value, kind):
            parts = dict.values(value) if kind is dict else kind.__iter__(value)  # type: ignore[attr-defined,arg-type]
    own: dict[str, Any] = {}
    if attributes and not isinstance(value, np.ndarray):
        with suppress(AttributeError):
            own = object.__getattribute__(value, "__dict__")
    found = tuple(chain(parts, own.values()))
    return () if _LEAVES.issuperset(map(type, found)) else found


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
