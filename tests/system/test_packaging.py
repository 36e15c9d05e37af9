"""The distribution: what a wheel holds, and which names are public."""

import configparser
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import accel
from tests.support import helpers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy, so that no build folder is left in the checkout."""
    source, target = tmp_path_factory.mktemp("source") / "accel", tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "data")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(target), str(source)], check=True, timeout=180)
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_its_backends(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"accel/{path.relative_to(ROOT / 'accel')}" for path in (ROOT / "accel").rglob("*.py")}
    for kind in ("*.py", "*.cu", "*.h"):
        found = (ROOT / "backends").rglob(kind)
        expected |= {f"accel/backends/{path.relative_to(ROOT / 'backends')}" for path in found}
    expected |= {"accel/py.typed", "accel/backends/__init__.py", "accel/backends/cpu/backend.py"}
    assert expected <= names, sorted(expected - names)


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"accel", f"accel_vision-{accel.__version__}.dist-info"}
    assert not [name for name in names if "test_" in name or "conftest" in name or name.endswith((".jpg", ".pyc"))]


def test_the_wheel_names_its_entry_points_and_version(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"accel_vision-{accel.__version__}.dist-info"
    entries = configparser.ConfigParser()
    entries.read_string(archive.read(f"{info}/entry_points.txt").decode())
    assert entries["accel.backends"]["cpu"] == "accel.backends.cpu:CpuBackend"
    metadata = archive.read(f"{info}/METADATA").decode()
    assert f"Version: {accel.__version__}" in metadata
    assert "Requires-Dist: torchvision" in metadata
    assert "License-Expression: BSD-3-Clause" in metadata
    assert "Description-Content-Type: text/markdown" in metadata
    assert "The distribution is called `accel-vision`" in metadata
    assert not re.search(r"\]\((?!https?://|#)", metadata), "a relative link, which an index does not resolve"
    assert "<!--" not in metadata


def test_links_of_the_description_lead_to_the_repository() -> None:
    script = runpy.run_path(str(ROOT / "setup.py"))
    text = (
        "![picture](docs/a.svg) [guide](docs/guide.md#start) [`b` [c]](LICENSE) [d](https://d.org) [e](#e) <!-- f -->1"
    )
    described = script["description"](text, "https://host.org/accel")
    assert described == (
        "![picture](https://host.org/accel/raw/HEAD/docs/a.svg) "
        "[guide](https://host.org/accel/blob/HEAD/docs/guide.md#start) "
        "[`b` [c]](https://host.org/accel/blob/HEAD/LICENSE) [d](https://d.org) [e](#e) 1"
    )
    assert script["description"](text, None) == " guide `b` [c] [d](https://d.org) [e](#e) 1"


def test_one_setting_names_the_repository() -> None:
    find = runpy.run_path(str(ROOT / "setup.py"))["repository"]
    assert (
        find('[project.urls]\nChanges = "https://b"\nSource = "https://a.org/accel/"\n[other]\n')
        == "https://a.org/accel"
    )
    assert find('[project.urls]\nChanges = "https://b"\n\n[other]\nSource = "https://a"\n') is None
    assert find('# [project.urls]\n# Source = "https://..."\n') is None


def test_the_wheel_works_alone(wheel: Path, tmp_path: Path) -> None:
    """Unpacked somewhere else, it is what is imported; short of compiling it all once more."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = f"""
import accel, io
from PIL import Image
from torchvision.transforms import functional as F
assert accel.__file__.startswith({str(tmp_path)!r}), accel.__file__
stream = io.BytesIO(); Image.new("RGB", (50, 40), "red").save(stream, "JPEG")
accel.set_image_backend("cpu", decode="pillow")
assert "decoder: pillow" in accel.explain(F.to_tensor(Image.open(stream)))
import accel.backends.cpu
assert accel.backends.cpu.__file__.startswith({str(tmp_path)!r})
"""
    helpers.python(code, path=tmp_path)


def test_errors_form_the_documented_tree() -> None:
    assert issubclass(accel.DecodeError, (accel.AccelError,))
    assert issubclass(accel.DecodeError, OSError)
    assert issubclass(accel.BackendUnavailable, accel.AccelError)
    assert issubclass(accel.BackendUnavailable, RuntimeError)
    for error in (accel.AccelError, accel.DecodeError, accel.BackendUnavailable):
        assert str(error("one string")) == "one string"


# -- what every commit gets ------------------------------------------------------------------------------------------


FOLDER = Path(__file__).resolve().parents[2] / ".ci"
PYTHONS = FOLDER / "pythons"
BASH, SORT, GIT = shutil.which("bash"), shutil.which("sort"), shutil.which("git")

needs_bash = pytest.mark.skipif(BASH is None or SORT is None, reason="needs bash and sort")


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


@needs_bash
def test_on_the_path_and_of_pyenv_the_oldest_first(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3", "echo 3.12 a")
    executable(tmp_path / "bin" / "python3.10", "exit 127")  # pyenv's stand-in for one that is not chosen
    executable(tmp_path / "bin" / "python3.12", "echo 3.12 b")
    executable(tmp_path / "versions" / "3.10.13" / "bin" / "python", "echo 3.10 c")
    executable(tmp_path / "versions" / "3.9.1" / "bin" / "python", "echo too old >&2")
    executable(tmp_path / "versions" / "3.13.0" / "bin" / "python", "echo 3.13 d")
    assert chosen(tmp_path) == ["3.10 c", "3.12 a", "3.13 d"]


@needs_bash
def test_one_python_is_enough(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3", "echo 3.12 a")
    assert chosen(tmp_path) == ["3.12 a"]


@needs_bash
def test_a_python_can_be_named(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3", "echo 3.12 a")
    executable(tmp_path / "elsewhere", "echo 3.11 b")
    assert chosen(tmp_path, PYTHON=str(tmp_path / "elsewhere")) == ["3.11 b"]
    assert chosen(tmp_path, PYTHON="nonesuch") == []


@needs_bash
def test_one_that_lacks_a_library_is_passed_over(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3", f'exec {sys.executable} "$@"')
    (tmp_path / "lzma.py").write_text("raise ImportError('_lzma')")
    assert chosen(tmp_path, PYTHONPATH=str(tmp_path)) == []
    whole = chosen(tmp_path)
    assert not whole or whole[0].split(maxsplit=1)[0] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert all(os.access(line.split(maxsplit=1)[1], os.X_OK) for line in whole)


@pytest.mark.skipif(GIT is None, reason="needs git")
@needs_bash
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
