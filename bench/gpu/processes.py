"""Processes for parts, so that a crash or hang in one loses nothing that was measured before."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.gpu.part import write
from bench.machine import ROOT


def run(file: Path, told: dict[str, Any], limit: float, where: Path = ROOT) -> dict[str, Any]:
    """Run a part; return its result, which is also in ``file``. Its processes' output goes to log.txt beside it.

    A process that ends within a step is followed by one for the later steps, while there is time.

    Args:
        limit: seconds after which all its processes are ended.
        where: the checkout whose code runs.
    """
    ends, log = time.monotonic() + limit, file.with_name("log.txt")
    file.unlink(missing_ok=True)
    result: dict[str, Any] = {"part": told["part"], "steps": {}}
    while not result.get("complete") and (left := ends - time.monotonic()) > 5:
        begun = len(result["steps"])
        with log.open("ab") as said:
            said.write(f"--- {file.stem}, {left:.0f} s left\n".encode())
            said.flush()
            before = said.tell()
            options = json.dumps({**told, "ends": time.time() + left - 5})
            command = [sys.executable, "-u", "-m", "bench.gpu.part", str(file), options]
            process = subprocess.Popen(
                command, cwd=where, stdin=subprocess.DEVNULL, stdout=said, stderr=said, preexec_fn=os.setpgrp
            )  # a group, to be ended as a whole; no session, which would survive when all processes are ended
            try:
                with ended_with_this(process.pid):
                    how = f"status {process.wait(left)}"
            except subprocess.TimeoutExpired:
                how = f"stopped after {limit:.0f} s"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if file.exists():
            result = json.loads(file.read_text())
        if not result.get("complete"):
            lines = log.read_bytes()[before:].decode(errors="replace").strip().splitlines()
            if any(line.startswith("Timeout (") for line in lines):  # how faulthandler's output begins
                how = f"took too long, {how}"
            last = next(reversed(result["steps"]), "its start") if len(result["steps"]) > begun else "its start"
            result["steps"][last] = {"failed": f"its process was ended: {how}", "says": lines[-40:]}
            write(file, result)
            if last == "its start":
                break
    return result


@contextmanager
def ended_with_this(group: int) -> Iterator[None]:
    """A context in which a group of processes ends with this one, even if this is killed: a process that waits on a
    pipe ends them."""
    command = ["sh", "-c", f"read nothing; kill -KILL -{group}"]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=os.setpgrp)
    try:
        yield
    finally:
        watcher.kill()
        watcher.wait()
        assert watcher.stdin is not None
        watcher.stdin.close()


def make_findable(folder: Path) -> None:
    """Let processes that are started from now on find accel's backends, by metadata made in ``folder``, which a bare
    checkout lacks."""
    section = re.search(
        r'\[project\.entry-points\."accel\.backends"\]\n((?:\w+ = .*\n)+)', (ROOT / "pyproject.toml").read_text()
    )
    assert section is not None
    made = folder / "accel_vision.egg-info"
    made.mkdir(parents=True, exist_ok=True)
    (made / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: accel-vision\nVersion: 0\n")
    (made / "entry_points.txt").write_text("[accel.backends]\n" + section[1].replace('"', ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
