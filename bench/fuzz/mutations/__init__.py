"""Changes that accident or malice make to a file, by name: ``headers``, ``scans`` and ``wholes``.

A mutation is a function (file, another file, random numbers) -> bytes, of any bytes whatever.
"""

from __future__ import annotations

from bench.fuzz.mutations import headers, scans, wholes  # noqa: F401  they enter theirs
from bench.fuzz.mutations.registry import MUTATIONS, Mutation, Rng

__all__ = ["MUTATIONS", "Mutation", "Rng"]
