"""What is noted of a batch when it is recorded, and its state digest: whether another batch was recorded the same.

Noting takes a few microseconds, so it keeps columns of numbers as they are; the digest, which is asked for only when a
state is saved or proved, takes them apart: it is the same for every way to record the same images.
"""

from __future__ import annotations

import copyreg
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from io import BytesIO
from itertools import islice
from typing import Any

import numpy as np
import torch
from PIL import Image

from accel.lazy.tensor_base import LazyTensorBase, pending_state
from accel.recipes.recipe import Branch, Recipe
from accel.recipes.rows import Rows, Structure
from accel.recipes.sources import table_of

SMALL, SAMPLED = 1 << 12, 64
"""The most bytes of a tensor that is noted whole, and how many numbers are noted of a larger one."""


def noted(batch: Any, whole: bool = False) -> bytes:
    """Note a batch of a loader as it was recorded, before its images are computed; ``whole``: all of every tensor."""
    parts: list[Any] = []
    try:
        _Notes(parts, sys.maxsize if whole else SMALL).add(batch, 0)
    except Exception as error:  # of the user's own classes
        parts.append(type(error).__name__)
    stream = BytesIO()
    pickler = pickle.Pickler(stream, 5)
    pickler.dispatch_table = {**copyreg.dispatch_table, torch.Tensor: _of_parameter}
    pickler.dump(parts)
    return stream.getvalue()


class _Notes:
    """Notes of a value's parts, found without methods of the user's; ``most``: how much of each, and how many."""

    def __init__(self, parts: list[Any], most: int) -> None:
        self._parts, self._most = parts, most
        self._seen: dict[int, Any] = {}

    def add(self, value: Any, depth: int) -> None:
        kind, parts, most = type(value), self._parts, self._most
        if kind in _PLAIN:
            parts.append(value)
        elif kind in (str, bytes):
            parts.append(value if len(value) <= most else (len(value), value[:SAMPLED], value[-SAMPLED:]))
        elif isinstance(value, torch.Tensor):
            lazy = pending_state(value)
            if lazy is None:
                parts.append(_of_tensor(value, most))
            else:
                parts.append(("images", lazy.lead, lazy.shape, lazy.dtype, lazy.after, _of_recipes(lazy.recipes)))
        elif isinstance(value, (np.ndarray, np.generic)):
            parts.append(_of_array(np.asarray(value), most))
        elif depth > _DEEPEST or id(value) in self._seen or len(parts) > most:
            parts.append(kind.__qualname__)
        else:
            self._seen[id(value)] = value  # which keeps the id its own
            self._add_parts(value, depth + 1)

    def _add_parts(self, value: Any, depth: int) -> None:
        parts, most = self._parts, self._most
        if isinstance(value, dict):
            parts.append("{")
            for key, each in islice(dict.items(value), most):
                self.add(key, depth)
                self.add(each, depth)
        elif isinstance(value, (list, tuple)):
            items: Any = list if isinstance(value, list) else tuple
            parts.append(items.__len__(value))
            for each in islice(items.__iter__(value), most):
                self.add(each, depth)
        elif isinstance(value, Image.Image):
            recipe = getattr(value, "recipe", None)
            parts.append((value.mode, value.size) if recipe is None else _of_recipes([recipe]))
        else:
            parts.append(type(value).__qualname__)
            with suppress(AttributeError):  # it has none
                self.add(object.__getattribute__(value, "__dict__"), depth)


_PLAIN = frozenset((int, float, bool, complex, type(None)))
_DEEPEST = 8


def _of_recipes(recipes: Sequence[Recipe]) -> Any:
    if isinstance(recipes, Rows):
        return _forms(recipes.structure), recipes.numbers.tobytes(), recipes.table()[:, -3:].tobytes()
    return [each.steps for each in recipes], table_of([each.source.header for each in recipes]).tobytes()


@lru_cache(maxsize=256)
def _forms(structure: Structure) -> bytes:
    return pickle.dumps(structure, 5)


def _of_tensor(tensor: torch.Tensor, most: int = SMALL) -> Any:
    """A tensor's dtype and shape, and its values, or some of them."""
    try:
        return _of_array(tensor.detach().resolve_conj().resolve_neg().numpy(), most)
    except (TypeError, RuntimeError):  # NumPy has none like it, or it is on a device
        return str(tensor.dtype), tuple(tensor.shape)


def _of_array(array: Any, most: int) -> Any:
    if array.dtype.hasobject:
        return array.dtype.str, array.shape
    if array.nbytes > most:
        places = np.unravel_index(np.linspace(0, array.size - 1, SAMPLED).astype(np.int64), array.shape)
        return array.dtype.str, array.shape, array[places].tobytes()
    return array.dtype.str, array.shape, array.tobytes()


def _of_parameter(tensor: torch.Tensor) -> Any:
    """Reduce a tensor among the parameters of a step to what is noted of it."""
    tensor = LazyTensorBase.materialize(tensor) if isinstance(tensor, LazyTensorBase) else tensor
    return tuple, (_of_tensor(tensor),)


# -- the digest --------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def state_digest(record: bytes) -> str:
    """The state digest of what was noted: 32 hexadecimal digits."""
    hasher = blake2b(digest_size=16)
    for part in pickle.loads(record):
        if isinstance(part, tuple) and part[:1] == ("images",):
            *layout, (steps, *numbers, sizes) = part
            images = _steps_of(steps, numbers[0], len(sizes) // 24) if numbers else steps
            text = _text(layout) + "\n".join(["".join(map(_text, each)) for each in images]) + _text(sizes)
        else:
            text = _text(part)
        hasher.update(f"{text}\n".encode("utf-8", "surrogatepass"))
    return hasher.hexdigest()


def _steps_of(forms: bytes, numbers: bytes, count: int) -> list[Any]:
    """The steps of each of so many images, which were rows."""
    structure: Structure = pickle.loads(forms)
    return [structure.steps(row) for row in np.frombuffer(numbers, np.int64).reshape(count, structure.columns).tolist()]


def _text(value: Any) -> str:
    """Text that is the same for equal values."""
    if isinstance(value, (bool, int, float)) and not isinstance(value, Enum):
        return repr(float(value)) if abs(value) < _EXACT or value != value else repr(value)
    if isinstance(value, bytes):
        return blake2b(value, digest_size=16).hexdigest() if len(value) > 64 else repr(value)
    if isinstance(value, Branch):
        return f"branch{_text(value.steps)}"
    if isinstance(value, (list, tuple)):
        return f"({','.join(map(_text, value))})"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return (
        repr(value) if isinstance(value, (str, complex, torch.dtype, torch.memory_format, type(None))) else str(value)
    )


_EXACT = 1 << 53


# -- what is recorded ---------------------------------------------------------------------------------------

_records: ContextVar[list[bytes] | None] = ContextVar("accel_records", default=None)


@contextmanager
def noting() -> Iterator[list[bytes]]:
    """Note the batches that this thread records in the block; a loader inside of its dataset records earlier ones."""
    records: list[bytes] = []
    token = _records.set(records)
    try:
        yield records
    finally:
        _records.reset(token)


def note(batch: Any) -> None:
    """Note a batch if this is wanted here."""
    if (records := _records.get()) is not None:
        records.append(noted(batch))
