"""Compares a file's tests with and without accel, and with the failures that are expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.upstream.expected import Expected
from bench.upstream.run import Outcome
from bench.upstream.sample import sample

GONE = Outcome("gone", "not run")


class Finding(NamedTuple):
    test: str
    outcome: Outcome


class Verdict(NamedTuple):
    counts: Counter[str]
    """of all tests, by kind of outcome under accel"""
    plain: int
    """that fail without accel as well"""
    expected: Counter[Expected]
    unexpected: list[Finding]
    spent: list[Expected]
    """rows of whose tests none fails as they say"""

    @property
    def good(self) -> bool:
        return not self.unexpected and not self.spent


def compare(
    plain: Mapping[str, Outcome], under: Mapping[str, Outcome], size: int | None, expected: Sequence[Expected]
) -> Verdict:
    """``under``: the outcomes with accel, of a sample of ``size`` of those without it.

    What passes without accel has to pass with it: to be skipped, or gone, is found as well.
    """
    failing, unexpected = 0, []
    rows: Counter[Expected] = Counter()
    for test in sorted(sample(plain, size) | under.keys()):
        before, after = plain.get(test, GONE), under.get(test, GONE)
        named = [row for row in expected if row.names(test)]
        if before.bad:
            failing += after.bad
            continue
        explained = next((row for row in named if row.explains(after)), None)
        if not explained and after.kind != before.kind and (after.kind != "passed" or before is GONE):
            unexpected.append(Finding(test, after))
        rows.update({row: row is explained for row in named})
    spent = [row for row, count in rows.items() if not count]
    return Verdict(Counter(outcome.kind for outcome in under.values()), failing, +rows, unexpected, spent)
