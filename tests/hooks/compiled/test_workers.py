"""All stock pipelines and many compositions in workers, however these are started: torchvision's, bit for bit."""

import copy
from pathlib import Path
from typing import Any

import pytest

import accel
from tests.hooks.compiled import sampled, standing
from tests.hooks.compiled.support import TOGETHER, ways
from tests.support import helpers
from tests.support.cuda import needs_compiler

pytestmark = pytest.mark.filterwarnings("ignore:.*image decoding and encoding:DeprecationWarning")


@pytest.mark.parametrize(
    ("method", "backend"),
    [
        ("spawn", "cpu"),
        *(pytest.param(method, "cpu", marks=pytest.mark.sweep) for method in ("fork", "forkserver")),
        *(pytest.param(way, "cuda", marks=[pytest.mark.sweep, needs_compiler]) for way in ("fork", "spawn")),
    ],
)
def test_many_pipelines(
    method: str, backend: str, root: Path, tmp_path_factory: pytest.TempPathFactory, thorough: bool
) -> None:
    made = tmp_path_factory.mktemp("sampled")
    roots = [sampled.write(made / "photos"), sampled.write(made / "odd", odd=True)]
    cases = [
        *standing.of_pipelines(root, 20 if thorough else 1),
        *standing.of_compositions(roots, range(4000, 4600 if thorough else 4030)),
    ]
    # forked workers give the same, and import torch for none; shared memory that is kept takes a descriptor a batch
    expected = [copy.deepcopy(found) for found in standing.run(cases, "fork")]
    options: dict[str, Any] = {"device": "cpu"} if backend == "cuda" else {}
    before = accel.stats()["ways"]
    with accel.image_backend(backend, **options):
        for number, found in enumerate(standing.run(cases, method)):
            try:
                helpers.assert_same(found, expected[number])
            except AssertionError as error:
                raise AssertionError(cases[number].about if number < len(cases) else "random states") from error
    assert number == len(cases)
    assert ways(before)[TOGETHER] > 2 * len(cases)
    assert ways(before, alone=True)["alone, compiled"] > len(cases)
