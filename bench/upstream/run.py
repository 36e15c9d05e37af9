"""One file of torchvision's tests under one backend, in a process of its own, and another after a crash or a hang."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from accel.cli.arguments import WrongUsage
from bench.child import Child
from bench.upstream.plugin import Backend, Tests

_STARTS = 600  # seconds
_SETTLED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}  # names of cases; idle threads

Advance = Callable[[int, int], None]


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
    """Run the tests; the outcome of every one, by its id within the folder.

    ``timeout``: seconds that a test may take. ``advance`` is called with the number done and the number of all.
    """
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="accel-upstream-") as scratch, mock.patch.dict(os.environ, _SETTLED):
        while ended := _process(file, backend, timeout, advance, outcomes, Path(scratch)):
            outcomes |= ended
    return outcomes


def _process(
    file: Path, backend: Backend, timeout: float, advance: Advance, outcomes: dict[str, Outcome], scratch: Path
) -> dict[str, Outcome]:
    """Run the tests that have no outcome yet, and add theirs; the test that ended the process, if one did, and how."""
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
