"""The kernels under AddressSanitizer and UBSan; sanitized_decoder.py has the JPEG decoder's."""

import subprocess
import sys

import pytest

from bench.machine import ROOT
from tests.support.cuda import host_only, needs_compiler

pytestmark = [needs_compiler, host_only]

SANITIZED = {
    None: (0, " batches, 0 wrong"),
    "too little room for coefficients": (1, "AddressSanitizer: use-after-poison"),
    "a misaligned table": (1, "misaligned address"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("mistake", SANITIZED)
def test_nothing_is_touched_that_is_not_theirs(mistake: str | None) -> None:
    """AddressSanitizer and UBSan, all memory between the pieces forbidden; a mistake is found."""
    command = [sys.executable, "-m", "rig", "sanitizers"]
    done = subprocess.run(
        [*command, "--mistake", mistake] if mistake else command,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(done.stdout)
    status, text = SANITIZED[mistake]
    assert bool(done.returncode) == bool(status), done.stdout + done.stderr
    assert text in done.stdout + done.stderr
