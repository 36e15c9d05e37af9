"""Odd environments: each works, with one line in the log."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hard_support import linux

from accel.codec import engines

SCRIPT = """
import io, torch
from PIL import Image
from torchvision.transforms import functional as F
stream = io.BytesIO(); Image.linear_gradient("L").convert("RGB").save(stream, "JPEG")
expected = F.to_tensor(F.resize(Image.open(stream), [100, 100]))
import accel
accel.set_image_backend("cpu")
found = F.to_tensor(F.resize(Image.open(stream), [100, 100]))
assert torch.equal(found, expected)
assert not accel.stats()["fallbacks"]
import numba
print(type(numba.njit(lambda x: x)).__name__)
"""


def test_numba_is_told_not_to_compile() -> None:
    """Which is right for a user's functions; accel's cannot do without."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "function\n"
    told = [line for line in done.stderr.splitlines() if not line.startswith("accel compiles its kernels")]
    assert told == ["NUMBA_DISABLE_JIT is set: accel's own functions are compiled all the same"]


@linux
def test_no_folder_takes_files_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", none)
    with engines._native_stderr_to_log():
        os.write(2, b"said by native code\n")
