"""Odd environments: each works, with one line in the log."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accel.codec import engines
from accel.system.native import units
from tests.support.processes import linux

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


@pytest.mark.sweep
def test_numba_is_told_not_to_compile(tmp_path: Path) -> None:
    """Which is right for a user's functions; accel's cannot do without."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "ACCEL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "function\n"
    (told,) = done.stderr.splitlines()
    assert told.startswith("accel compiles its kernels")


def test_nothing_can_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(units, "get_executable", lambda: None)
    unit = units.Unit("markers", "codec/jpeg/markers.py", seconds=1)
    unit.function("codec.jpeg.markers", "first_marker", "u1[1] int")
    try:
        with pytest.raises(RuntimeError, match="NUMBA_DISABLE_JIT"):
            units.ready([unit])
    finally:
        units._units.remove(unit)


@linux
def test_no_folder_takes_files_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", none)
    with engines._native_stderr_to_log():
        os.write(2, b"said by native code\n")
