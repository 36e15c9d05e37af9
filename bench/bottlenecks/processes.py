"""Processes for plants: with a slow disk or a small /dev/shm if a plant needs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.bottlenecks.plant import Plant
from bench.machine import ROOT

_SMALL_SHM = 'mount -t tmpfs -o size="$1" tmpfs /dev/shm && shift && exec "$@"'


class NotRun(Exception):
    """The plant cannot run on this machine; the message says why."""


def run(
    plants: Sequence[Plant], folder: Path, scratch: Path, *arguments: str
) -> Iterator[tuple[Plant, dict[str, Any] | NotRun]]:
    """Run plants; yield each with the result of ``bench.bottlenecks.child``, or the reason why it was not run."""
    disk = slow_files(scratch)
    together = [plant for plant in plants if not plant.apart]
    for some in [together] * bool(together) + [[plant] for plant in plants if plant.apart]:
        lacking = {plant.name: _lacking(plant, disk) for plant in some}
        command = [sys.executable, "-m", "bench.bottlenecks.child", str(folder), str(scratch), *arguments]
        command += [plant.name for plant in some if not lacking[plant.name]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SLOW_FILES": str(folder)}
        if isinstance(disk, Path):
            environment["LD_PRELOAD"] = str(disk)
        if some[0].apart:
            environment |= some[0].environment
        if some[0].shm is not None:
            command = [*_namespace(), _SMALL_SHM, "sh", str(some[0].shm), *command]
        process = None if all(lacking.values()) else subprocess.Popen(command, cwd=ROOT, env=environment)
        for plant in some:
            reason = lacking[plant.name]
            yield plant, NotRun(reason) if reason else _found(process, scratch / f"{plant.name}.json")
        if process is not None:
            process.wait()


def _found(process: subprocess.Popen[bytes] | None, out: Path) -> dict[str, Any]:
    """Wait for a child's result."""
    while not out.exists() and process is not None:
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"error": "the process ended early"}
    return found


def _lacking(plant: Plant, disk: Path | str) -> str | None:
    if isinstance(disk, str) and any(name.startswith("SLOW_") for name in plant.environment):
        return disk
    if plant.shm is not None and not _namespace():
        return "a small /dev/shm takes a mount namespace, which unshare may not make here"
    return None


def slow_files(scratch: Path) -> Path | str:
    """Compile the library that makes files slow; return its path, or the reason why there is none."""
    library, compiler = scratch / "slow_files.so", shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return "a slow disk takes Linux and a C compiler"
    source = Path(__file__).parent / "slow_files.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def _namespace() -> list[str]:
    """The command that runs a shell in its own mount namespace; [] if that is not allowed."""
    for command in (["unshare", "-m"], ["unshare", "-Urm"]):
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return [*command, "sh", "-c"]
    return []
