"""bench.upstream: that it finds what fails under accel alone, knows what is expected, and survives crashes and hangs.

On a tree that is made up: torchvision's own tests are no part of this project.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.upstream import __main__ as command
from bench.upstream.expected import EXPECTED, Expected, compare
from bench.upstream.run import Outcome, sample

PASSED, FAILED = Outcome("passed"), Outcome("failed", "AssertionError: assert 1 is 2")

TESTS = """
import os, time
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

import accel

FILE = BytesIO()
Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(FILE, "JPEG")


def opened():
    return Image.open(BytesIO(FILE.getvalue())).convert("RGB")


@pytest.mark.parametrize("size", [(8, 8), (4, 4)])
def test_that_passes(size):
    assert opened().crop((0, 0, *size)).size == size


@pytest.mark.parametrize("number", range(5))
def test_a_type_that_is_known(number):
    assert type(opened()) is Image.Image or number == 0


class TestTypes:
    def test_a_type(self):
        assert type(opened()) is Image.Image


def test_that_fails_anywhere():
    assert opened() is None


@pytest.mark.skip
def test_that_is_skipped():
    pass


@pytest.mark.xfail(strict=True)
def test_that_is_known_to_fail():
    assert opened() is None
"""
ENDS = """

def test_that_crashes():
    if accel.get_image_backend() == "cpu":
        os._exit(7)


def test_that_hangs():
    if accel.get_image_backend() == "cuda":
        time.sleep(3600)


def test_that_is_skipped_under_accel():
    if accel.get_image_backend() != "torchvision":
        pytest.skip("not here")


def test_behind_them():
    pass
"""
KNOWN = Expected(
    r"test_image\.py::test_a_type_that_is_known\[[1-9]\]", r"is <class 'PIL\.Image\.Image'>", "a known type"
)


def tree(root: Path, tests: str) -> Path:
    (root / "test").mkdir(parents=True)
    (root / "test" / "test_image.py").write_text(tests)
    (root / "test" / "test_models.py").write_text("raise RuntimeError('not asked for')")
    (root / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\nxfail_strict = True\n")
    (root / "torchvision").mkdir()
    (root / "torchvision" / "__init__.py").write_text("raise RuntimeError('not the one that is installed')")
    return root


def told(root: Path, file: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    status = command.main([str(root), "--json", str(file), *arguments])
    return status, json.loads(file.read_text())["verdicts"]


@pytest.mark.sweep
def test_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    gone = Expected(r"test_image\.py::test_that_passes\[.*", "", "no reason any more")
    monkeypatch.setattr(command, "EXPECTED", (KNOWN, gone))
    root = tree(tmp_path / "vision", TESTS + ENDS)
    status, verdicts = told(root, tmp_path / "told.json", "--timeout", "20", "--cuda-sample", "1")
    assert status == command.FOUND
    assert verdicts.keys() == {"test_image.py, cpu", "test_image.py, cuda"}
    cpu, cuda = verdicts.values()
    assert cpu["counts"] == {"passed": 5, "failed": 6, "skipped": 2, "xfailed": 1, "crashed": 1}
    assert cpu["fail in torchvision"] == 1
    assert cpu["expected"] == {"a known type": 4}
    assert [(name.partition("::")[2], kind) for name, kind, _ in cpu["unexpected"]] == [
        ("TestTypes::test_a_type", "failed"),
        ("test_that_crashes", "crashed"),
        ("test_that_is_skipped_under_accel", "skipped"),
    ]
    assert cpu["spent"] == cuda["spent"] == [gone.tests]
    assert sum(cuda["counts"].values()) == 10  # one of two and of five cases
    assert ["test_image.py::test_that_hangs", "hung"] in [[name, kind] for name, kind, _ in cuda["unexpected"]]
    said = capsys.readouterr().out
    assert "4 expected: a known type" in said or "5 expected: a known type" in said
    assert "test_that_crashes\n  crashed under cpu\n  exit status 7" in said
    assert f"none fails any more that bench/upstream/expected.py names: {gone.tests}" in said
    assert not list(root.rglob(".pytest_cache"))


@pytest.mark.sweep
def test_a_tree_as_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    types = Expected(r"test_image\.py::TestTypes::test_a_type", "LazyPlainImage", "another known type")
    monkeypatch.setattr(command, "EXPECTED", (KNOWN, types))
    status, verdicts = told(
        tree(tmp_path / "vision", TESTS), tmp_path / "told.json", "--sample", "2", "--backends", "cpu"
    )
    assert status == command.CLEAN
    assert [sum(verdict["counts"].values()) for verdict in verdicts.values()] == [8]


@pytest.mark.sweep
def test_trees_that_cannot_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path)]) == 2
    assert "not a source tree" in capsys.readouterr().err
    assert command.main([str(tree(tmp_path / "vision", "import no_such_module"))]) == 2
    assert "no_such_module" in capsys.readouterr().err


def test_a_sample_has_cases_of_every_function() -> None:
    names = [f"test.py::test_{function}[{case}]" for function in "ab" for case in range(50)] + ["test.py::test_c"]
    assert sample(names, None) == set(names)
    few, more = sample(names, 2), sample(reversed(names), 5)
    assert len(few) == 5
    assert len(more) == 11
    assert few < more
    assert "test.py::test_c" in few


@pytest.mark.parametrize(
    ("plain", "under", "found"),
    [
        (PASSED, PASSED, "nothing"),
        (FAILED, FAILED, "nothing"),
        (FAILED, PASSED, "nothing"),
        (Outcome("skipped"), PASSED, "nothing"),
        (PASSED, FAILED, "unexpected"),
        (PASSED, Outcome("skipped"), "unexpected"),
        (PASSED, None, "unexpected"),
        (None, FAILED, "unexpected"),
        (Outcome("xfailed"), FAILED, "unexpected"),
        (Outcome("skipped"), FAILED, "unexpected"),
    ],
)
def test_verdicts(plain: Outcome | None, under: Outcome | None, found: str) -> None:
    names = {"test": plain}, {"test": under}
    before, after = ({name: each for name, each in side.items() if each is not None} for side in names)
    verdict = compare(before, after, None, ())
    assert [finding.test for finding in verdict.unexpected] == (["test"] if found == "unexpected" else [])
    assert verdict.good == (found == "nothing")
    if under is FAILED and plain is PASSED:
        assert compare(before, after, None, (Expected("test", "1 is 2", "a reason"),)).good
        other = compare(before, after, None, (Expected("test", "1 is 3", "another failure"),))
        assert len(other.unexpected) == len(other.spent) == 1


def test_the_list() -> None:
    """Rows of the project's own list are regular expressions, and have reasons."""
    for row in EXPECTED:
        assert re.compile(row.tests)
        assert re.compile(row.says)
        assert row.why
