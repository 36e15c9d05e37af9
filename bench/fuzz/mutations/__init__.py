"""Changes that accident or malice make to a file, by name: ``headers``, ``scans`` and ``wholes``.

A mutation is a function (file, another file, random numbers) -> bytes, of any bytes whatever.
"""

from __future__ import annotations

from bench.fuzz.mutations import headers, scans, wholes
from bench.fuzz.mutations.registry import Mutation, Rng

MUTATIONS: dict[str, Mutation] = {**headers.MUTATIONS, **scans.MUTATIONS, **wholes.MUTATIONS}

__all__ = ["MUTATIONS", "Mutation", "Rng"]
