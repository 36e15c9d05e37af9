"""Which cases of a test function are run where not all are: the same under every backend, by their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from hashlib import sha256


def sample(tests: Iterable[str], size: int | None) -> set[str]:
    """Choose the ``size`` cases with the lowest digests of each test function (the name before a ``[``); None: all.

    A smaller sample is part of a larger one.
    """
    functions = defaultdict(list)
    for test in tests:
        functions[test.partition("[")[0]].append(test)
    return {test for cases in functions.values() for test in sorted(cases, key=_digest)[:size]}


def _digest(test: str) -> bytes:
    return sha256(test.encode()).digest()
