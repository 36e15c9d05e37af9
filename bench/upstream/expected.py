"""The failures under accel that torchvision's own tests should have, each with its reason."""

from __future__ import annotations

import re
from typing import NamedTuple

from bench.upstream.run import Outcome


class Expected(NamedTuple):
    tests: str
    """a regular expression of whole test ids, one of which fails at least"""
    says: str
    """a regular expression that the failure's text has somewhere"""
    why: str

    def names(self, test: str) -> bool:
        return re.fullmatch(self.tests, test) is not None

    def explains(self, outcome: Outcome) -> bool:
        return outcome.bad and re.search(self.says, outcome.text) is not None


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
