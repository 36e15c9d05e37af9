"""A GPU's device, through the installed cuda.core, onto a driver that the host stands in for (rig/driver.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.machine import ROOT
from rig.driver import CHECKS, FINISHED_WORK, LOCKED_MEMORY, compile_for, install
from tests.support.cuda import host_only, needs_compiler

pytestmark = [needs_compiler, host_only, pytest.mark.skipif(sys.platform != "linux", reason="the driver is Linux's")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in for the driver."""
    pytest.importorskip("cuda.core", reason="launches go through cuda.core")
    made = tmp_path_factory.mktemp("driver")
    install(made)
    return made


@pytest.mark.parametrize(
    "check",
    [
        check
        if check in ("every kernel", FINISHED_WORK, LOCKED_MEMORY)
        else pytest.param(check, marks=pytest.mark.sweep)
        for check in CHECKS
    ],
)
def test_onto_a_driver(check: str, folder: Path) -> None:
    """Whole batches equal torchvision's; every kernel is found and given what was said; refusals are raised."""
    compile_for(check)
    done = subprocess.run(
        [sys.executable, "-m", "rig.driver", check], cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
