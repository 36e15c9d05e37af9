"""STAND-IN."""
from __future__ import annotations
from typing import Any, NamedTuple
from collections.abc import Sequence
import numpy as np
INDEX, RESULT, PLANES = 1, 2, 3
class Entry(NamedTuple):
    kind: int
    parts: tuple[bytes, ...]
    part_sizes: tuple[int, ...]
    meta: bytes
class File(NamedTuple):
    header: bytes
    entries: tuple[Entry, ...]
class Cache:
    def __init__(self, budget): self.files = {}; self.budget = budget; self.n = 0
    @classmethod
    def open(cls, folder, budget, *, version): return cls(budget)
    def look(self, key): return self.files.get(key)
    def read(self, entry, first, last, out):
        data = b"".join(entry.parts[first:last]); memoryview(out).cast("B")[:] = data; return True
    def put(self, key, header, kind, parts, meta):
        size = sum(memoryview(p).nbytes for p in parts)
        if self.n + size > self.budget: return False
        f = self.files.get(key) or File(header, ())
        if any(e.kind == kind and e.meta == meta for e in f.entries): return True
        self.n += size
        parts = tuple(bytes(p) for p in parts)
        self.files[key] = File(header, (*f.entries, Entry(kind, parts, tuple(map(len, parts)), meta)))
        return True
    def room(self, size): return self.n + size <= self.budget
    def used(self): return self.n, self.budget
    def flush(self): pass
