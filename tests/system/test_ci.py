"""Which Pythons the check takes, `.ci/pythons`, and how it counts lines, `.ci/lines`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / ".ci"
PYTHONS = FOLDER / "pythons"
BASH, SORT, GIT = shutil.which("bash"), shutil.which("sort"), shutil.which("git")

pytestmark = pytest.mark.skipif(BASH is None or SORT is None, reason="needs bash and sort")


def executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shutil.which('sh')}\n{script}\n")
    path.chmod(0o755)


def chosen(folder: Path, **environment: str) -> list[str]:
    """The Pythons found with nothing but ``folder/bin`` on the PATH, and pyenv's versions below ``folder``."""
    (folder / "bin").mkdir(exist_ok=True)
    if not (folder / "bin" / "sort").exists():
        (folder / "bin" / "sort").symlink_to(str(SORT))
    variables = {"PATH": str(folder / "bin"), "PYENV_ROOT": str(folder), **environment}
    done = subprocess.run([str(BASH), PYTHONS], capture_output=True, text=True, env=variables, timeout=60, check=True)
    return done.stdout.splitlines()


def test_on_the_path_and_of_pyenv_the_oldest_first(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3", "echo 3.12 a")
    executable(tmp_path / "bin" / "python3.10", "exit 127")  # pyenv's stand-in for one that is not chosen
    executable(tmp_path / "bin" / "python3.12", "echo 3.12 b")
    executable(tmp_path / "versions" / "3.10.13" / "bin" / "python", "echo 3.10 c")
    executable(tmp_path / "versions" / "3.9.1" / "bin" / "python", "echo too old >&2")
    executable(tmp_path / "versions" / "3.13.0" / "bin" / "python", "echo 3.13 d")
    assert chosen(tmp_path) == ["3.10 c", "3.12 a", "3.13 d"]


def test_one_python_is_enough(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3", "echo 3.12 a")
    assert chosen(tmp_path) == ["3.12 a"]


def test_a_python_can_be_named(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3", "echo 3.12 a")
    executable(tmp_path / "elsewhere", "echo 3.11 b")
    assert chosen(tmp_path, PYTHON=str(tmp_path / "elsewhere")) == ["3.11 b"]
    assert chosen(tmp_path, PYTHON="nonesuch") == []


def test_one_that_lacks_a_library_is_passed_over(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3", f'exec {sys.executable} "$@"')
    (tmp_path / "lzma.py").write_text("raise ImportError('_lzma')")
    assert chosen(tmp_path, PYTHONPATH=str(tmp_path)) == []
    whole = chosen(tmp_path)
    assert not whole or whole[0].split(maxsplit=1)[0] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert all(os.access(line.split(maxsplit=1)[1], os.X_OK) for line in whole)


@pytest.mark.skipif(GIT is None, reason="needs git")
def test_lines_are_counted_and_compared(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        name = "-c", "user.name=a", "-c", "user.email=a"
        subprocess.run([str(GIT), *name, *words], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    (tmp_path / ".ci").mkdir()
    shutil.copy(FOLDER / "lines", tmp_path / ".ci" / "lines")
    for name, count in {"accel/a.py": 3, "backends/b/c.cu": 4, "tests/d.py": 5, "accel/e.md": 50, "f.py": 60}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(count * "line\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    git("branch", "start")
    (tmp_path / "accel" / "a.py").write_text("line\n")
    git("commit", "-qam", "two")
    (tmp_path / "backends" / "b" / "c.cu").write_text(10 * "line\n")  # not committed
    told = [subprocess.check_output([tmp_path / ".ci" / "lines", *to], text=True) for to in ([], ["start"])]
    assert [line.rpartition(" since")[0] for line in told[0].splitlines()] == [
        *("-- accel + backends: 11 lines, +4", "-- tests + rig: 5 lines, +0")
    ]
    assert told[1].startswith("-- accel + backends: 11 lines, +4 since")
