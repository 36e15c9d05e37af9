"""Lazy tensors in objects that only their own pickling can tell all about."""

from __future__ import annotations

import copyreg
import numbers
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from PIL import Image

from accel.lazy.tensor_base import LazyTensorBase, pending_state

_KNOWN = (torch.Tensor, numbers.Number, np.generic, str, bytes, bytearray, Image.Image, type(None))


def lazy_tensors(leaves: Sequence[Any]) -> list[LazyTensorBase]:
    """The lazy tensors that would be sent along with what is none of torch's, NumPy's or Python's own values.

    They are found by pickling such objects, as the queue will. What has a way of its own to other processes (storages,
    connections, ...) is passed by: going that way moves it, or keeps a descriptor open.
    """
    finder = _Finder()
    for leaf in leaves:
        if not isinstance(leaf, _KNOWN) and not _holds_numbers(leaf):
            with suppress(Exception):  # the queue will say what cannot be sent
                finder.dump(leaf)
    return finder.found


def _holds_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not value.dtype.hasobject


class _Finder(ForkingPickler):
    """Writes nothing, and passes the values of tensors, arrays and pictures by."""

    def __init__(self) -> None:
        super().__init__(_Nowhere())
        self.found: list[LazyTensorBase] = []

    def reducer_override(self, value: Any) -> Any:
        if pending_state(value) is not None:
            self.found.append(value)
        kind = type(value)
        sent = kind in self.dispatch_table and kind not in copyreg.dispatch_table
        if sent or isinstance(value, (torch.Tensor, Image.Image)) or _holds_numbers(value):
            return str, ()
        return NotImplemented


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)
