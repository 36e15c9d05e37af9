"""The pytest plugin inside: sets the backend, chooses the sample, writes what came of every test as it ends.

What it is to do stands in the environment, as JSON; ``bench.upstream.run`` puts it there.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import accel

JOB = "ACCEL_UPSTREAM"


def pytest_configure(config: pytest.Config) -> None:
    """The two lines that a user writes, before any module of tests is imported."""
    job = json.loads(os.environ[JOB])
    accel.set_image_backend(job["name"], **job["options"])
    config.pluginmanager.register(Recorder(Path(job["into"]), job["sample"], set(job["done"])))


class Recorder:
    """Writes a line of JSON when the tests are known, and when one starts and ends."""

    def __init__(self, into: Path, sample: int | None, done: set[str]) -> None:
        self._into = into
        self._sample = sample
        self._done = done
        self._outcome: tuple[str, str] = "passed", ""

    def _write(self, **line: Any) -> None:
        with self._into.open("a") as file:
            file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Its sample, without those that were done before."""
        chosen = sample([item.nodeid for item in items], self._sample)
        items[:] = [item for item in items if item.nodeid in chosen]
        self._write(event="collected", count=len(items))
        items[:] = [item for item in items if item.nodeid not in self._done]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(event="broken", text=report.longreprtext[-2000:])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcome = "passed", ""
        self._write(event="started", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The worst of setup, call and teardown."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else report.longreprtext
            self._outcome = ("failed" if report.when == "call" else "error"), text
        elif report.skipped and self._outcome[0] == "passed":
            self._outcome = ("xfailed" if hasattr(report, "wasxfail") else "skipped"), ""

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        kind, text = self._outcome
        self._write(event="ended", test=nodeid, kind=kind, text=text[:2000])


def sample(tests: Iterable[str], size: int | None) -> set[str]:
    """Choose the ``size`` cases with the lowest digests of each test function (the name before a ``[``); None: all.

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
