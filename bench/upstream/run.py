"""One file of torchvision's tests under one backend, in a process of its own, and another after a crash or a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from accel.cli.arguments import WrongUsage
from bench.machine import ROOT
from bench.upstream import plugin

_POLL, _STARTS = 0.1, 600  # seconds
_SETTLED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}  # names of cases; idle threads


class Broken(WrongUsage):
    """The tests could not be run at all."""


class Backend(NamedTuple):
    name: str
    options: dict[str, Any]
    sample: int | None
    """cases of each test function; None: all"""


class Outcome(NamedTuple):
    kind: str
    """passed, xfailed, skipped, failed, error (outside of the test itself), crashed, hung"""
    text: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in ("failed", "error", "crashed", "hung")


def run(file: Path, backend: Backend, timeout: float, advance: Callable[[int, int], None]) -> dict[str, Outcome]:
    """Run the tests; the outcome of every one, by its id within the folder.

    ``timeout``: seconds that a test may take. ``advance`` is called with the number done and the number of all.
    """
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="accel-upstream-") as scratch:
        while True:
            ended = _Process(file, backend, outcomes, Path(scratch)).wait(timeout, advance)
            if ended is None:
                return outcomes
            test, outcome = ended
            outcomes[test] = outcome


class _Process:
    """A pytest of the tests that have no outcome yet; it fills ``outcomes``."""

    def __init__(self, file: Path, backend: Backend, outcomes: dict[str, Outcome], scratch: Path) -> None:
        self._outcomes = outcomes
        self._lines = scratch / "lines"
        self._lines.write_text("")
        self._said = scratch / "said"
        self._read = self._total = 0
        self._running: str | None = None
        self._broken: str | None = None
        job = {**backend._asdict(), "done": list(outcomes), "into": str(self._lines)}
        folder, ini = file.parent, file.parent.parent / "pytest.ini"
        options = ["-q", "--tb=short", "-p", plugin.__name__, "-p", "no:cacheprovider", "-o", "addopts="]
        options += ["-c", str(ini if ini.exists() else os.devnull), "--rootdir", str(folder)]
        command = [sys.executable, "-m", "pytest", *options, str(file)]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, **_SETTLED, "PYTHONPATH": os.pathsep.join(paths), plugin.JOB: json.dumps(job)}
        cwd = scratch / "cwd"  # neither the tree's own torchvision nor what its tests write
        cwd.mkdir(exist_ok=True)
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
            )

    def wait(self, timeout: float, advance: Callable[[int, int], None]) -> tuple[str, Outcome] | None:
        """None when all have been run; or the test that ended the process, and how."""
        try:
            alive = time.monotonic()
            while self._process.poll() is None:
                time.sleep(_POLL)
                if self._take():
                    alive = time.monotonic()
                    advance(len(self._outcomes), self._total)
                elif self._running is not None and time.monotonic() - alive > timeout:
                    return self._running, Outcome("hung", f"took more than {timeout:g} s")
                elif time.monotonic() - alive > max(timeout, _STARTS):
                    raise Broken(f"no test starts, or the last one does not end\n{self._tail()}")
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        self._take()
        advance(len(self._outcomes), self._total)
        if self._running is not None:
            return self._running, Outcome("crashed", f"exit status {self._process.returncode}\n{self._tail()}")
        if self._broken or not self._total or self._process.returncode not in (0, 1, 5):
            raise Broken(self._broken or f"exit status {self._process.returncode}\n{self._tail()}")
        return None

    def _take(self) -> bool:
        """Read the whole lines written since the last time; whether there were any."""
        with self._lines.open() as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole.encode())
        for line in map(json.loads, whole.splitlines()):
            if line["event"] == "collected":
                self._total = line["count"]
            elif line["event"] == "broken":
                self._broken = line["text"]
            elif line["event"] == "started":
                self._running = line["test"]
            else:
                self._running = None
                self._outcomes[line["test"]] = Outcome(line["kind"], line["text"])
        return bool(whole)

    def _tail(self) -> str:
        return self._said.read_text(errors="replace")[-2000:]
