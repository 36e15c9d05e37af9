"""Processes for plants: with a slow disk, or with a small /dev/shm, where the plant wants them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from bench.bottlenecks.plant import Plant
from bench.machine import ROOT

_LIMIT = 180  # seconds
_SMALL_SHM = 'mount -t tmpfs -o size="$1" tmpfs /dev/shm && shift && exec "$@"'


class NotRun(Exception):
    """The plant cannot be had on this machine; the message says why."""


def run(plant: Plant, folder: Path, scratch: Path, *arguments: str) -> dict[str, Any]:
    """What ``bench.bottlenecks.child`` writes of a plant.

    Raises:
        NotRun: the machine lacks what the plant takes. RuntimeError: the process failed.
    """
    out = scratch / f"{plant.name}.json"
    command = [sys.executable, "-m", "bench.bottlenecks.child", plant.name, str(folder), str(out), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **plant.environment}
    if any(name.startswith("SLOW_") for name in plant.environment):
        environment |= {"SLOW_FILES": str(folder), "LD_PRELOAD": str(_slow_files(scratch))}
    if plant.shm is not None:
        command = [*_namespace(), _SMALL_SHM, "sh", str(plant.shm), *command]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_LIMIT)
    if done.returncode or not out.exists():
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@cache
def _slow_files(scratch: Path) -> Path:
    """The library that makes files slow, compiled."""
    library = scratch / "slow_files.so"
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        raise NotRun("a slow disk takes Linux and a C compiler")
    source = Path(__file__).with_suffix("").parent / "slow_files.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@cache
def _namespace() -> tuple[str, ...]:
    """How to run a shell in a mount namespace of its own."""
    for command in (("unshare", "-m"), ("unshare", "-Urm")):
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return (*command, "sh", "-c")
    raise NotRun("a small /dev/shm takes a mount namespace, which unshare may not make here")
