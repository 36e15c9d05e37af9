"""Strict memory: global memory is only known allocations, shared memory only variables; every access is checked."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rig.ptx.parse import Variable

Array = Any  # NumPy's; its own types cannot tell what an instruction makes

SHARED = 1 << 56
"""The generic address at which shared memory begins."""

GAP = 64
"""Bytes between shared variables, and before the first, so that an address that leaves a variable is in none."""


class Fault(Exception):
    """A mistake at which a GPU would stop, or which it would ignore; the text has the place and the threads."""


class GlobalMemory:
    """Allocations of the host's memory, at their own addresses."""

    def __init__(self, allocations: Iterable[tuple[int, int]]) -> None:
        """``allocations``: address and size of each."""
        known = sorted((address, size) for address, size in allocations if size)
        self._starts = np.array([address for address, _ in known], np.uint64)
        self._ends = np.array([address + size for address, size in known], np.uint64)
        self._list = self._starts.tolist()
        self._base = self._list[0] & -64 if known else 64
        self._size = int(self._ends.max()) - self._base if known else 0
        self._views: dict[Any, Array] = {}

    def outside(self, addresses: Array, size: int) -> Array:
        """Which accesses of ``size`` bytes are not inside one allocation: bool[n], or empty if all are."""
        low, high = int(addresses.min()), int(addresses.max())
        found = bisect_right(self._list, low) - 1
        if found >= 0 and high + size <= int(self._ends[found]):
            return np.zeros(0, bool)
        numbers = np.searchsorted(self._starts, addresses, "right") - 1
        ends = self._ends[np.maximum(numbers, 0)]
        # compared without overflow: an address may be any 64 bits
        return (numbers < 0) | (addresses >= ends) | (ends - np.minimum(addresses, ends) < np.uint64(size))

    def view(self, dtype: Any) -> Array:
        """All memory as an array of values, of which those between the allocations must not be touched."""
        if dtype not in self._views:
            self._views[dtype] = np.asarray(_Span(self._base, self._size // dtype.itemsize, dtype))
        return self._views[dtype]

    def places(self, addresses: Array, dtype: Any) -> Array:
        """The indices of addresses in ``view``."""
        return ((addresses - np.uint64(self._base)) // np.uint64(dtype.itemsize)).view(np.int64)


class _Span:
    def __init__(self, address: int, count: int, dtype: Any) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (count,), "typestr": dtype.str, "version": 3}


class SharedMemory:
    """The shared memory of several blocks: filled with garbage, and checked for races.

    A race is two threads, one of them writing, that use a byte between the same two barriers.
    """

    def __init__(self, variables: dict[str, Variable], blocks: int, rng: np.random.Generator) -> None:
        self.addresses: dict[str, int] = {}
        size = GAP
        for name, variable in variables.items():
            size = -(-size // variable.alignment) * variable.alignment
            self.addresses[name] = SHARED + size
            size += variable.size + GAP
        self.size = -(-size // GAP) * GAP
        self._owner = np.zeros(self.size, np.int32)
        for number, (name, variable) in enumerate(variables.items(), 1):
            start = self.addresses[name] - SHARED
            self._owner[start : start + variable.size] = number
        self._names = ["no variable", *variables]
        self.bytes = np.frombuffer(bytearray(rng.bytes(blocks * self.size)), np.uint8)
        # the last use of each byte: the number of barriers before, and the thread in the low byte
        self._written = np.full(blocks * self.size, _NEVER, np.uint32)
        self._read = np.full(blocks * self.size, _NEVER, np.uint32)
        self._read_by_many = np.full(blocks * self.size, _NEVER, np.uint32)
        self._atomic = np.full(blocks * self.size, _NEVER, np.uint32)

    def outside(self, offsets: Array, size: int) -> Array:
        """Which accesses of ``size`` bytes are not inside one variable: bool[n]."""
        first = offsets.view(np.int64)
        known = (first >= 0) & (first <= self.size - size)
        first = np.where(known, first, 0)
        owner = self._owner[first]
        return ~known | (owner == 0) | (owner != self._owner[first + size - 1])

    def read(self, places: Array, size: int, stamps: Array) -> Array:
        """Record reads; return which of the threads read what another one writes in the same phase."""
        rows, stamps = places // size, stamps[:, None]
        bad = _same_phase(self._written.reshape(-1, size)[rows], stamps)
        bad |= _same_phase(self._atomic.reshape(-1, size)[rows], stamps)
        reads, many = self._read.reshape(-1, size), self._read_by_many.reshape(-1, size)
        before = reads[rows]
        reads[rows] = stamps
        several = (reads[rows] != stamps) | _same_phase(before, stamps)
        which, byte = np.nonzero(several)
        many[rows[which], byte] = stamps[which, 0] & ~np.uint32(255)
        return bad.any(1)

    def write(self, places: Array, size: int, stamps: Array) -> Array:
        """Record writes; return which of the threads write what another one reads or writes in the same phase."""
        rows, stamps = places // size, stamps[:, None]
        written = self._written.reshape(-1, size)
        bad = self._used(rows, size, stamps) | _same_phase(self._atomic.reshape(-1, size)[rows], stamps)
        written[rows] = stamps
        bad |= written[rows] != stamps
        return bad.any(1)

    def atomic(self, places: Array, size: int, stamps: Array) -> Array:
        """Record atomics, which do not race with each other; return which race with other accesses."""
        rows, stamps = places // size, stamps[:, None]
        self._atomic.reshape(-1, size)[rows] = stamps
        return self._used(rows, size, stamps).any(1)

    def _used(self, rows: Array, size: int, stamps: Array) -> Array:
        """Which bytes another thread has read or written in the same phase."""
        written, read, many = (each.reshape(-1, size)[rows] for each in (self._written, self._read, self._read_by_many))
        return _same_phase(written, stamps) | _same_phase(read, stamps) | (many == stamps & ~np.uint32(255))

    def unwritten(self, places: Array, size: int) -> Array:
        """Which accesses read bytes that were never written."""
        return (self._written.reshape(-1, size)[places // size] == _NEVER).any(1)


_NEVER = 0xFFFFFFFF


def _same_phase(before: Array, stamps: Array) -> Array:
    """Whether another thread was there in the same phase, so that stamps differ only in the low byte."""
    return (before ^ stamps) - np.uint32(1) < np.uint32(255)


# -- loads, stores and atomics of many threads at once

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
        """``starts``: where the shared memory of each thread's block begins in that of all blocks. ``who``: describes
        the instruction, the thread and the address of a fault."""
        self._global, self._shared, self._starts = known, shared, starts
        self._rng, self._who = rng, who
        self.stamps = np.zeros(0, np.uint32)
        """For each thread the number of barriers that its block has passed, and the thread's number in the low byte."""

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
        """Run an atomic for one thread after another, in random order; return the old value for each."""
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
        """The threads that access global memory, and those that access shared memory (True)."""
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
        return self._starts[ids] + offsets

    def _check(self, bad: Array, number: int, ids: Array, addresses: Array, what: str) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            raise Fault(f"{self._who(number, ids[first], int(addresses[first]))} {what}; so do {bad.sum()} threads")
