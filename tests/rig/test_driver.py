"""A GPU's device, through the installed cuda.core, onto a driver that the host stands in for (fake_driver.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_support import host_only, needs_compiler
from fake_driver import CHECKS

from accel.backends.cuda import compile, host

pytestmark = [needs_compiler, host_only, pytest.mark.skipif(sys.platform != "linux", reason="the driver is Linux's")]

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a driver; all kernels are compiled, for NVRTC would look for a real one."""
    pytest.importorskip("cuda.core", reason="launches go through cuda.core")
    made = tmp_path_factory.mktemp("driver")
    flags = ("-std=c++17", "-O1", "-shared", "-fPIC")
    (made / "libcuda.so.1").write_bytes(host._compile(HERE / "fake_cuda.cpp", flags))
    for unit in compile.UNITS:
        compile.cubin(unit, "sm_90")
    return made


@pytest.mark.parametrize("check", CHECKS)
def test_onto_a_driver(check: str, folder: Path) -> None:
    """Whole batches equal torchvision's; every kernel is found and given what was said; refusals are raised."""
    done = subprocess.run(
        [sys.executable, str(HERE / "fake_driver.py"), check],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
