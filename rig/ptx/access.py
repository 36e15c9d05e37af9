"""Loads, stores and atomics of many threads at once, each of them checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .memory import SHARED, Fault, GlobalMemory, SharedMemory

Array = npt.NDArray[Any]
Who = Callable[[int, Any, int], str]

_ATOMICS: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, value: old + value,
    "exch": lambda old, value: value,
    "max": max,
    "min": min,
}


class Access:
    """The memory that the threads of several blocks see."""

    def __init__(
        self, known: GlobalMemory, shared: SharedMemory, starts: Array, rng: np.random.Generator, who: Who
    ) -> None:
        """``starts``: where in the shared memory of all blocks each thread's own begins. ``who``: says what the
        instruction, the thread and the address of a fault are."""
        self._global, self._shared, self._starts = known, shared, starts
        self._rng, self._who = rng, who
        self.stamps = np.zeros(0, np.uint32)
        """Of each thread: how many barriers its block has passed, and its number in the low byte."""

    def load(self, number: int, ids: Array, space: str, addresses: Array, dtype: Any, count: int) -> list[Array]:
        size = dtype.itemsize * count
        parts = self._parts(number, ids, space, addresses, size)
        if len(parts) == 2:
            made = [np.empty(len(ids), dtype) for _ in range(count)]
            for part, shared in parts:
                got = self._load(number, ids[part], shared, addresses[part], dtype, count)
                for whole, values in zip(made, got, strict=True):
                    whole[part] = values
            return made
        return self._load(number, ids, parts[0][1], addresses, dtype, count)

    def _load(self, number: int, ids: Array, shared: bool, addresses: Array, dtype: Any, count: int) -> list[Array]:
        if not shared:
            values, first = self._global.view(dtype), self._global_places(number, ids, addresses, dtype, count)
        else:
            size, places = dtype.itemsize * count, self._shared_places(number, ids, addresses, dtype.itemsize * count)
            self._check(self._shared.unwritten(places, size), number, ids, addresses, "reads what nobody has written")
            bad = self._shared.read(places, size, self.stamps[ids])
            self._check(bad, number, ids, addresses, "reads what another thread writes in the same phase")
            values, first = self._shared.bytes.view(dtype), places // dtype.itemsize
        return [values[first + k] for k in range(count)]

    def store(self, number: int, ids: Array, space: str, addresses: Array, dtype: Any, given: list[Any]) -> None:
        size = dtype.itemsize * len(given)
        for part, shared in self._parts(number, ids, space, addresses, size):
            some, at = ids[part], addresses[part]
            if shared:
                places = self._shared_places(number, some, at, size)
                bad = self._shared.write(places, size, self.stamps[some])
                self._check(bad, number, some, at, "writes what another thread uses in the same phase")
                values, first = self._shared.bytes.view(dtype), places // dtype.itemsize
            else:
                values, first = self._global.view(dtype), self._global_places(number, some, at, dtype, len(given))
            for k, each in enumerate(given):
                values[first + k] = each[part] if np.ndim(each) else each

    def atomic(self, number: int, ids: Array, space: str, addresses: Array, dtype: Any, op: str, value: Any) -> Array:
        """One thread after another, in random order; returns what each found."""
        value = np.broadcast_to(value, len(ids))
        found = np.empty(len(ids), dtype)
        change, wrap = _ATOMICS[op], 1 << 8 * dtype.itemsize
        for part, shared in self._parts(number, ids, space, addresses, dtype.itemsize):
            some, at = ids[part], addresses[part]
            if shared:
                places = self._shared_places(number, some, at, dtype.itemsize)
                garbage = self._shared.unwritten(places, dtype.itemsize)
                self._check(garbage, number, some, at, "reads what nobody has written")
                bad = self._shared.atomic(places, dtype.itemsize, self.stamps[some])
                self._check(bad, number, some, at, "changes what another thread uses in the same phase")
                values, first = self._shared.bytes.view(dtype), places // dtype.itemsize
            else:
                values, first = self._global.view(dtype), self._global_places(number, some, at, dtype, 1)
            order = self._rng.permutation(len(some))
            cells: dict[int, int] = {}
            olds = []
            for place, add in zip(first[order].tolist(), value[part][order].tolist(), strict=True):
                old = cells[place] if place in cells else int(values[place])
                olds.append(old)
                new = change(old, add) % wrap
                cells[place] = new - wrap if dtype.kind == "i" and new >= wrap // 2 else new
            values[list(cells)] = list(cells.values())
            here = np.empty(len(some), dtype)
            here[order] = olds
            found[part] = here
        return found

    # -- checks

    def _parts(self, number: int, ids: Array, space: str, addresses: Array, size: int) -> list[tuple[Any, bool]]:
        """The threads that go to global memory, and those that go to shared memory."""
        if size > 1:
            self._check(addresses & np.uint64(size - 1) != 0, number, ids, addresses, f"is not aligned to {size} bytes")
        if space == "shared":
            return [(slice(None), True)]
        shared = addresses >= np.uint64(SHARED)
        some = int(np.count_nonzero(shared))
        if some == 0 or space == "global":
            return [(slice(None), False)]
        return [(slice(None), True)] if some == len(shared) else [(~shared, False), (shared, True)]

    def _global_places(self, number: int, ids: Array, addresses: Array, dtype: Any, count: int) -> Array:
        bad = self._global.outside(addresses, dtype.itemsize * count)
        self._check(bad, number, ids, addresses, "leaves its allocation")
        return self._global.places(addresses, dtype)

    def _shared_places(self, number: int, ids: Array, addresses: Array, size: int) -> Array:
        offsets = (addresses & np.uint64(SHARED - 1)).view(np.int64)
        self._check(self._shared.outside(offsets, size), number, ids, addresses, "leaves its shared variable")
        places: Array = self._starts[ids] + offsets
        return places

    def _check(self, bad: Array, number: int, ids: Array, addresses: Array, what: str) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            raise Fault(f"{self._who(number, ids[first], int(addresses[first]))} {what}; so do {bad.sum()} threads")
