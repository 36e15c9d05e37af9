"""Running the tests that need a GPU, and the kernels under compute-sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

from bench.gpu.setting import NotInstalled, Setting, Step
from bench.machine import ROOT

CUDA = "tests/backends/cuda"
DEVICE_ONLY = (f"{CUDA}/test_submit_gpu.py", f"{CUDA}/test_gpu.py")
"""Tests that no stand-in can run: forks, streams, memory."""
TESTS: dict[str, tuple[str, ...]] = {
    "forks, streams, memory": ("-n", "0", "-m", "gpu", *DEVICE_ONLY),
    "kernels": (CUDA, *(f"--ignore={file}" for file in DEVICE_ONLY), "tests/backends/dali/test_gpu.py"),
    "conformance": ("tests/ops/test_conformance.py", "-m", "gpu"),
    "sweeps": (CUDA, "-m", "sweep"),
}
UNDER_SANITIZER = (
    *("-n", "0", *(f"{CUDA}/test_{name}.py" for name in ("exact", "effects", "jpeg_kernels"))),
    *("-k", "ragged or borders or one_source or fill or dtypes or specified or restart or damage or joined or handful"),
)
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
HANG = 100  # seconds after which a test prints where it is


def measure(setting: Setting) -> Iterator[Step]:
    """Each run's exit status and last lines; 0 is green."""
    for name, arguments in TESTS.items():
        yield name, partial(_pytest, setting, [], *arguments)
    for tool in TOOLS:
        yield tool, partial(_sanitized, setting, tool)


def _sanitized(setting: Setting, tool: str) -> dict[str, Any]:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        raise NotInstalled("compute-sanitizer")
    # cuda.core asks the driver for functions that it may lack, which is no error of ours
    options = ("--error-exitcode", "99", "--report-api-errors", "no", "--kernel-name-exclude", "kernel_substring=at::")
    return _pytest(setting, [sanitizer, "--tool", tool, *options], *UNDER_SANITIZER)


def _pytest(setting: Setting, prefix: list[str], *arguments: str) -> dict[str, Any]:
    on_gpu = setting.device.type == "cuda"
    if "gpu" in arguments and not on_gpu:
        raise NotInstalled("a GPU, which these tests need")
    environment = {**os.environ, "ACCEL_TEST_DEVICE": str(setting.device), "ACCEL_REQUIRE_GPU": "1" if on_gpu else ""}
    command = [*prefix, sys.executable, "-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider"]
    command += ["-o", f"faulthandler_timeout={HANG}", *arguments]
    if find_spec("pytest_timeout") is not None:
        command += ["--timeout", str(2 * HANG)]
    with tempfile.TemporaryFile("w+") as said:
        try:
            limit = setting.limit - 5
            status: Any = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT, timeout=limit, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"stopped after {limit:.0f} s"
        said.seek(0)
        lines = said.read().strip().splitlines()
    print(*lines, sep="\n")
    return {"status": status, "says": lines[-12:], **({} if status == 0 else {"failed": f"pytest: {status}"})}
