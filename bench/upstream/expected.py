"""The expected failures of torchvision's own tests under accel, and comparing a file's tests with and without accel
with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.upstream.run import Outcome, sample

GONE = Outcome("gone", "not run")


class Expected(NamedTuple):
    tests: str
    """a regular expression of whole test ids, at least one of which fails"""
    says: str
    """a regular expression found in the failure's text"""
    why: str


class Finding(NamedTuple):
    test: str
    outcome: Outcome


class Verdict(NamedTuple):
    counts: Counter[str]
    """the number of all tests, by kind of outcome under accel"""
    plain: int
    """the number of tests that fail without accel as well"""
    expected: Counter[Expected]
    unexpected: list[Finding]
    spent: list[Expected]
    """rows none of whose tests fails as they say"""

    @property
    def good(self) -> bool:
        return not self.unexpected and not self.spent


def compare(
    plain: Mapping[str, Outcome], under: Mapping[str, Outcome], size: int | None, expected: Sequence[Expected]
) -> Verdict:
    """Compare the outcomes without accel with those ``under`` it, of a sample of ``size``.

    A test that passes without accel must pass with it: being skipped or missing counts as a finding, too.
    """
    failing, unexpected = 0, []
    rows: Counter[Expected] = Counter()
    for test in sorted(sample(plain, size) | under.keys()):
        before, after = plain.get(test, GONE), under.get(test, GONE)
        named = [row for row in expected if re.fullmatch(row.tests, test)]
        if before.bad:
            failing += after.bad
            continue
        explained = next((row for row in named if after.bad and re.search(row.says, after.text)), None)
        if not explained and after.kind != before.kind and (after.kind != "passed" or before is GONE):
            unexpected.append(Finding(test, after))
        rows.update({row: row is explained for row in named})
    spent = [row for row, count in rows.items() if not count]
    return Verdict(Counter(outcome.kind for outcome in under.values()), failing, +rows, unexpected, spent)


EXPECTED = (
    Expected(
        r"test_transforms_v2\.py::(Test\w+::test_(transform|transform_smoke|compose|random_apply|random_choice"
        r"|random_order)|TestGetKernel::test_pil_image_subclass)(\[.*\])?",
        r"^AssertionError: assert <class 'accel\.lazy\.\w+\.\w+'> is <class 'PIL\.",
        "type(x) is type(y): an image that is not computed yet has a class of its own, a subclass of Pillow's",
    ),
    Expected(
        r"test_image\.py::test_damaged_corrupt_images\[corrupt\.jpg\]",
        r"DID NOT RAISE",
        "damage in the middle of a file is found when the pixels are computed, and raised there",
    ),
)
