"""The compiled code with other allocators: uses of memory after it was freed, or past its end, are found.

glibc's own, made strict: nothing that was freed stays as it is. And one that puts each block between pages that may
not be touched, and has freed ones untouchable for good (bench/guard): the first wrong access ends the process.
"""

import os
import platform
import signal
import subprocess
import sys

import pytest

from bench import guard
from bench.machine import ROOT

STRICT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "MALLOC_PERTURB_": "90"}

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the variables are glibc's")
needs_guard = pytest.mark.skipif(bool(guard.unavailable()), reason=str(guard.unavailable()))


def run(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.rig.memory_checked", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False)


@needs_glibc
@pytest.mark.parametrize(
    "what", ["decoder", *(pytest.param(what, marks=pytest.mark.sweep) for what in ("kernels", "loader"))]
)
def test_nothing_is_used_after_it_was_freed(what: str) -> None:
    done = run(what, environment={**os.environ, **STRICT})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing found" in done.stdout


# kernels take minutes: the other way by hand, `python -m tests.rig.memory_checked kernels --walls before`
WALLED = [*((what, walls) for what in ("decoder", "loader") for walls in ("behind", "before")), ("kernels", "behind")]


@needs_guard
@pytest.mark.sweep
@pytest.mark.parametrize(("what", "walls"), WALLED)
def test_nothing_is_touched_beyond_its_walls(what: str, walls: str) -> None:
    done = run(what, "--walls", walls, environment=guard.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing found" in done.stdout
    assert "refused=0" in done.stdout


@pytest.mark.sweep
@needs_guard
@pytest.mark.parametrize(
    ("mistake", "walls", "text"),
    [
        ("let go", "behind", "of a freed block"),
        pytest.param("let go", "before", "of a freed block", marks=pytest.mark.sweep),
        ("too small", "behind", "guard: access to byte"),
    ],
)
def test_mistakes_are_found(mistake: str, walls: str, text: str) -> None:
    done = run("decoder", "--walls", walls, "--mistake", mistake, environment=guard.environment())
    assert done.returncode == -signal.SIGSEGV, done.stdout + done.stderr
    assert text in done.stderr
