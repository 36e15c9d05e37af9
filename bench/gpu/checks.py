"""The tests that need a GPU, and the kernels under compute-sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

from bench.gpu.setting import Setting
from bench.machine import ROOT

TESTS = ("tests/backends/cuda", "tests/backends/dali/test_gpu.py")
UNDER_SANITIZER = (
    *(f"tests/backends/cuda/test_{name}.py" for name in ("exact", "effects", "jpeg_kernels")),
    *("-k", "ragged or borders or one_source or fill or dtypes or specified or restart or damage or joined or handful"),
)
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def measure(setting: Setting) -> dict[str, Any]:
    """Each run's exit status and last lines; 0 is green."""
    device = str(setting.device)
    found = {
        "tests": _pytest([], device, *TESTS, "-m", ""),
        "conformance": _pytest([], device, "tests/ops/test_conformance.py", "-m", "gpu" if device != "cpu" else ""),
    }
    sanitizer = shutil.which("compute-sanitizer")
    for tool in TOOLS:
        if sanitizer is None:
            found[tool] = {"status": None, "says": "compute-sanitizer is not installed"}
        else:
            options = ("--error-exitcode", "99", "--kernel-name-exclude", "kernel_substring=at::")
            prefix = [sanitizer, "--tool", tool, *options]
            found[tool] = _pytest(prefix, device, *UNDER_SANITIZER)
    return found


def _pytest(prefix: list[str], device: str, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "ACCEL_TEST_DEVICE": device}
    if device != "cpu":
        environment["ACCEL_REQUIRE_GPU"] = "1"
    command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return {"status": done.returncode, "says": "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])}
