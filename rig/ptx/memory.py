"""Strict memory: global memory is known allocations, shared memory is the variables; every access is checked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .parse import Variable

Array = npt.NDArray[Any]

SHARED = 1 << 56
"""Where shared memory lies among generic addresses."""

GAP = 64
"""Bytes between shared variables, and before the first: an address that leaves a variable lies in none."""


class Fault(Exception):
    """What a GPU would stop at, or would let pass in silence; with the place and the threads."""


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
        """Which accesses of ``size`` bytes do not lie in one allocation."""
        low, high = int(addresses.min()), int(addresses.max())
        found = bisect_right(self._list, low) - 1
        if found >= 0 and high + size <= int(self._ends[found]):
            return np.zeros(0, bool)
        numbers = np.searchsorted(self._starts, addresses, "right") - 1
        ends = self._ends[np.maximum(numbers, 0)]
        # compared without overflow: an address may be any 64 bits
        return (numbers < 0) | (addresses >= ends) | (ends - np.minimum(addresses, ends) < np.uint64(size))

    def view(self, dtype: Any) -> Array:
        """All of it as an array of values; what lies between the allocations must not be touched."""
        if dtype not in self._views:
            self._views[dtype] = np.asarray(_Span(self._base, self._size // dtype.itemsize, dtype))
        return self._views[dtype]

    def places(self, addresses: Array, dtype: Any) -> Array:
        """The indices in ``view``."""
        return ((addresses - np.uint64(self._base)) // np.uint64(dtype.itemsize)).view(np.int64)


class _Span:
    def __init__(self, address: int, count: int, dtype: Any) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (count,), "typestr": dtype.str, "version": 3}


class SharedMemory:
    """That of several blocks: full of garbage, and watched for races.

    A race: two threads, one of them writing, use a byte between the same two barriers.
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
        # who used a byte last, and when: the number of barriers before, and the thread in the low byte
        self._written = np.full(blocks * self.size, _NEVER, np.uint32)
        self._read = np.full(blocks * self.size, _NEVER, np.uint32)
        self._read_by_many = np.full(blocks * self.size, _NEVER, np.uint32)
        self._atomic = np.full(blocks * self.size, _NEVER, np.uint32)

    def outside(self, offsets: Array, size: int) -> Array:
        """Which accesses of ``size`` bytes do not lie in one variable."""
        first = offsets.view(np.int64)
        known = (first >= 0) & (first <= self.size - size)
        first = np.where(known, first, 0)
        owner = self._owner[first]
        bad: Array = ~known | (owner == 0) | (owner != self._owner[first + size - 1])
        return bad

    def read(self, places: Array, size: int, stamps: Array) -> Array:
        """Note it; returns which of the threads read what another one writes in the same phase."""
        rows, stamps = places // size, stamps[:, None]
        bad = _same_phase(self._written.reshape(-1, size)[rows], stamps)
        bad |= _same_phase(self._atomic.reshape(-1, size)[rows], stamps)
        reads, many = self._read.reshape(-1, size), self._read_by_many.reshape(-1, size)
        before = reads[rows]
        reads[rows] = stamps
        several = (reads[rows] != stamps) | _same_phase(before, stamps)
        which, byte = np.nonzero(several)
        many[rows[which], byte] = stamps[which, 0] & ~np.uint32(255)
        found: Array = bad.any(1)
        return found

    def write(self, places: Array, size: int, stamps: Array) -> Array:
        """Likewise: which of the threads write what another one reads or writes in the same phase."""
        rows, stamps = places // size, stamps[:, None]
        written = self._written.reshape(-1, size)
        bad = self._used(rows, size, stamps) | _same_phase(self._atomic.reshape(-1, size)[rows], stamps)
        written[rows] = stamps
        bad |= written[rows] != stamps
        found: Array = bad.any(1)
        return found

    def atomic(self, places: Array, size: int, stamps: Array) -> Array:
        """Likewise; atomics do not race with each other."""
        rows, stamps = places // size, stamps[:, None]
        self._atomic.reshape(-1, size)[rows] = stamps
        found: Array = self._used(rows, size, stamps).any(1)
        return found

    def _used(self, rows: Array, size: int, stamps: Array) -> Array:
        """Which bytes another thread has read or written in the same phase."""
        written, read, many = (each.reshape(-1, size)[rows] for each in (self._written, self._read, self._read_by_many))
        found: Array = _same_phase(written, stamps) | _same_phase(read, stamps) | (many == stamps & ~np.uint32(255))
        return found

    def unwritten(self, places: Array, size: int) -> Array:
        """Which of the accesses see garbage."""
        found: Array = (self._written.reshape(-1, size)[places // size] == _NEVER).any(1)
        return found


_NEVER = 0xFFFFFFFF


def _same_phase(before: Array, stamps: Array) -> Array:
    """Whether another thread was there in the same phase: the stamps differ in the low byte alone."""
    return (before ^ stamps) - np.uint32(1) < np.uint32(255)
