"""Processes for parts, so that a crash or hang in one loses nothing that was measured before."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from bench import child
from bench.gpu.part import write
from bench.machine import ROOT

PART = ("-m", "bench.gpu.part")  # the program that runs steps
_LEAST = 5.0  # seconds within which a process is not begun, and before the end of which it stops by itself


def run(file: Path, told: dict[str, Any], limit: float, where: Path = ROOT) -> dict[str, Any]:
    """Run steps of a part that ``file`` has no results of; return its content. Output goes to log.txt beside it.

    A process that ends within a step is followed by one for the later steps, while there is time.

    Args:
        told: see ``part.main``.
        limit: seconds after which all its processes are ended; a step within which that happens is begun by a later
            call once more.
        where: the checkout whose code runs.
    """
    ends, log = time.monotonic() + limit, file.with_name("log.txt")
    result: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"part": told["part"], "steps": {}}
    while (left := ends - time.monotonic()) > _LEAST:
        with log.open("ab") as said:
            said.write(f"--- {file.stem}, {left:.0f} s left\n".encode())
            said.flush()
            before = said.tell()
            options = json.dumps({**told, "ends": time.time() + left - _LEAST})
            command = [sys.executable, "-u", *PART, str(file), options]
            status = child.run(command, left, said, where)
        if file.exists():
            result = json.loads(file.read_text())
        if status == 0 or ("running" in result and ends - time.monotonic() < _LEAST):
            break
        lines = log.read_bytes()[before:].decode(errors="replace").strip().splitlines()
        how = f"stopped after {limit:.0f} s" if status is None else f"status {status}"
        if any(line.startswith("Timeout (") for line in lines):  # how faulthandler's output begins
            how = f"took too long, {how}"
        step = result.pop("running", None)
        failed = {"failed": f"its process was ended: {how}", "says": lines[-40:]}
        if step is None:
            return {**result, "steps": {**result["steps"], "its start": failed}}  # not in the file: nothing was begun
        result["steps"][step] = failed
        write(file, result)
    return result


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
