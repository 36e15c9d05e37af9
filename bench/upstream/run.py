"""Running one file of torchvision's tests under one backend, in its own process, and another after a crash or hang."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

import accel
from accel.cli.arguments import WrongUsage
from bench.child import Child, Say

_STARTS = 600  # seconds
_SETTLED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}  # names of cases; idle threads

Advance = Callable[[int, int], None]


class Backend(NamedTuple):
    name: str
    options: dict[str, Any]
    sample: int | None
    """the number of cases of each test function; None for all"""


class Tests(NamedTuple):
    """The tests of one file under a backend, without those ``done`` before; running them ends the process."""

    file: Path
    backend: Backend
    done: set[str]
    cwd: Path
    """a folder without the tree's own torchvision, for what its tests write"""

    def run(self, say: Say) -> None:
        self.cwd.mkdir(exist_ok=True)
        os.chdir(self.cwd)
        folder, ini = self.file.parent, self.file.parent.parent / "pytest.ini"
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", str(folder)]
        accel.set_image_backend(self.backend.name, **self.backend.options)  # before any module of tests is imported
        command = [*options, "-c", str(ini if ini.exists() else os.devnull), str(self.file)]
        sys.exit(pytest.main(command, [Recorder(say, self.backend.sample, self.done)]))


class Recorder:
    """A pytest plugin that reports the number of tests, and each test's start and outcome."""

    def __init__(self, say: Say, sample: int | None, done: set[str]) -> None:
        self._say, self._sample, self._done = say, sample, done
        self._outcome: tuple[str, str] = "passed", ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep only the sample, without the tests that were done before."""
        chosen = sample([item.nodeid for item in items], self._sample)
        self._say(("collected", len(chosen)))
        items[:] = [item for item in items if item.nodeid in chosen - self._done]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(("broken", report.longreprtext[-2000:]))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcome = "passed", ""
        self._say(("started", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the worst outcome of setup, call and teardown."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else report.longreprtext
            self._outcome = ("failed" if report.when == "call" else "error"), text[:2000]
        elif report.skipped and self._outcome[0] == "passed":
            self._outcome = ("xfailed" if hasattr(report, "wasxfail") else "skipped"), ""

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._say(("ended", nodeid, *self._outcome))


def sample(tests: Iterable[str], size: int | None) -> set[str]:
    """The ``size`` cases of each test function (the name before a ``[``) with the lowest digests; all if it is None.

    A smaller sample is part of a larger one.
    """
    functions = defaultdict(list)
    for test in tests:
        functions[test.partition("[")[0]].append(test)
    return {
        test
        for cases in functions.values()
        for test in sorted(cases, key=lambda test: sha256(test.encode()).digest())[:size]
    }


class Broken(WrongUsage):
    """The tests could not be run at all."""


class Outcome(NamedTuple):
    kind: str
    """passed, xfailed, skipped, failed, error (outside of the test itself), crashed, hung"""
    text: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in ("failed", "error", "crashed", "hung")


def run(file: Path, backend: Backend, timeout: float, advance: Advance) -> dict[str, Outcome]:
    """Run the tests; return the outcome of every one, by its id within the folder.

    ``timeout``: the most seconds of a test. ``advance`` is called with the number done and the number of all.
    """
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="accel-upstream-") as scratch, mock.patch.dict(os.environ, _SETTLED):
        while ended := _process(file, backend, timeout, advance, outcomes, Path(scratch)):
            outcomes |= ended
    return outcomes


def _process(
    file: Path, backend: Backend, timeout: float, advance: Advance, outcomes: dict[str, Outcome], scratch: Path
) -> dict[str, Outcome]:
    """Run the tests without outcomes, and add theirs; return the test that ended the process, if any, and how."""
    running, total, broken, alive = "", 0, "", time.monotonic()
    tests = Tests(file, backend, set(outcomes), scratch / "cwd")
    with Child("spawn", tests.run, scratch / "said") as child:
        for said in child.messages():
            if said is None:
                quiet = time.monotonic() - alive
                if running and quiet > timeout:
                    return {running: Outcome("hung", f"took more than {timeout:g} s")}
                if quiet > max(timeout, _STARTS):
                    raise Broken(f"no test starts, or the last one does not end\n{child.printed()[-2000:]}")
                continue
            alive, (event, what, *rest) = time.monotonic(), said
            running = what if event == "started" else ""
            if event == "collected":
                total = what
            elif event == "broken":
                broken = what
            elif event == "ended":
                outcomes[what] = Outcome(*rest)
            advance(len(outcomes), total)
        how = f"exit status {child.wait()}\n{child.printed()[-2000:]}"
        if running:
            return {running: Outcome("crashed", how)}
        if broken or not total or child.wait() not in (0, 1, 5):
            raise Broken(broken or how)
    return {}
