"""The distribution: what a wheel holds, and which names are public."""

import configparser
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import accel
from accel.system.native import object_cache
from tests.support import helpers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[list[Path]]:
    """The source distribution and the wheel of it, built twice, of copies: no build folder is left in the checkout."""
    return [build(tmp_path_factory.mktemp(f"build{number}"), 1e9 + number) for number in range(2)]


@pytest.fixture(scope="module")
def wheel(built: list[list[Path]]) -> Path:
    return built[0][1]


def pack(folder: Path, *arguments: str | Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "build", "--no-isolation", "--outdir", folder, *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def build(folder: Path, age: float) -> list[Path]:
    """Build of a copy whose files have this time of change."""
    source = folder / "accel"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "data")
    shutil.copytree(ROOT, source, ignore=ignored)
    for path in source.rglob("*"):
        os.utime(path, (age, age), follow_symlinks=False)
    pack(folder, source)
    return [*folder.glob("*.tar.gz"), *folder.glob("*.whl")]


def test_the_wheel_holds_the_package_and_its_backends(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected: set[str] = set()
    for kind in ("*.py", "*.cu", "*.h"):
        expected |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "accel").rglob(kind)}
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


def test_the_same_files_give_the_same_bytes(built: list[list[Path]]) -> None:
    once, again = ([(path.name, path.read_bytes()) for path in paths] for paths in built)
    assert len(once) == 2
    assert once == again


def test_the_source_distribution_holds_no_tests(built: list[list[Path]]) -> None:
    with tarfile.open(built[0][0]) as archive:
        names = archive.getnames()
    assert f"accel_vision-{accel.__version__}/accel/py.typed" in names
    assert not [name for name in names if "/tests" in name]


def test_what_an_earlier_build_left_is_not_packed(built: list[list[Path]], tmp_path: Path) -> None:
    """A module that is gone since, in the checkout in which ``pip install .`` is run again."""
    source = built[0][0].parent / "accel"
    left = source / "build" / "lib" / "accel" / "gone.py"
    left.parent.mkdir(parents=True)
    left.touch()
    pack(tmp_path, "--wheel", source)
    assert next(tmp_path.glob("*.whl")).read_bytes() == built[0][1].read_bytes()


def test_the_bill_of_materials_names_all_that_is_required(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"accel_vision-{accel.__version__}.dist-info"
    bill = json.loads(archive.read(f"{info}/sboms/accel_vision.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == accel.__version__
    assert bill["metadata"]["component"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
    needed = {re.split(r"[^\w.-]", text)[0] for text in metadata.get_all("Requires-Dist", [])}
    assert {each["name"] for each in bill["components"]} == needed > {"torch", "numba"}
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(set(refs)) == len(refs)
    assert bill["dependencies"] == [{"ref": "accel-vision", "dependsOn": refs}]


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


@pytest.mark.sweep
def test_the_wheel_passes_tests_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    """In a new environment, which has the other packages of this one, and away from the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["ACCEL_CACHE_DIR"] = str(object_cache.folder())
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=60)
    python = tmp_path / "venv" / "bin" / "python"
    packages = Path(
        subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip()
    )
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, timeout=120, env=environment)  # before it sees the accel of this environment
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    for name in ("tests", "bench", "rig"):
        shutil.copytree(ROOT / name, tmp_path / "suite" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "suite")
    command = [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/hooks/test_switch.py"]
    command += ["tests/ops/test_functional.py", "tests/lazy/test_image.py"]
    done = subprocess.run(
        command, cwd=tmp_path / "suite", env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout
    code = "import accel; print(accel.__file__)"
    where = subprocess.check_output([python, "-c", code], cwd=tmp_path / "suite", env=environment, text=True)
    assert Path(where.strip()).is_relative_to(packages)


def test_errors_form_the_documented_tree() -> None:
    assert issubclass(accel.DecodeError, (accel.AccelError,))
    assert issubclass(accel.DecodeError, OSError)
    assert issubclass(accel.BackendUnavailable, accel.AccelError)
    assert issubclass(accel.BackendUnavailable, RuntimeError)
    for error in (accel.AccelError, accel.DecodeError, accel.BackendUnavailable):
        assert str(error("one string")) == "one string"


# -- what every commit gets ------------------------------------------------------------------------------------------


FOLDER = ROOT / "scripts"
PYTHONS = FOLDER / "pythons"
BASH, SORT, GIT = shutil.which("bash"), shutil.which("sort"), shutil.which("git")

needs_bash = pytest.mark.skipif(BASH is None or SORT is None, reason="needs bash and sort")


def executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shutil.which('sh')}\n{script}\n")
    path.chmod(0o755)


def chosen(folder: Path, *version: str, **environment: str) -> list[str]:
    """The Pythons found with nothing but ``folder/bin`` on the PATH, and pyenv's versions below ``folder``."""
    (folder / "bin").mkdir(exist_ok=True)
    if not (folder / "bin" / "sort").exists():
        (folder / "bin" / "sort").symlink_to(str(SORT))
    variables = {"PATH": str(folder / "bin"), "PYENV_ROOT": str(folder), **environment}
    done = subprocess.run(
        [str(BASH), PYTHONS, *version], capture_output=True, text=True, env=variables, timeout=60, check=True
    )
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
def test_one_without_the_gil_is_named_by_its_version(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "python3.13", "echo 3.13 a")
    executable(tmp_path / "bin" / "python3.14t", "echo 3.14t b")
    assert chosen(tmp_path) == ["3.13 a"]
    assert chosen(tmp_path, "3.14t") == ["3.14t b"]
    assert chosen(tmp_path, "3.14") == []


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

    (tmp_path / "scripts").mkdir()
    shutil.copy(FOLDER / "lines", tmp_path / "scripts" / "lines")
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
    told = [subprocess.check_output([tmp_path / "scripts" / "lines", *to], text=True) for to in ([], ["start"])]
    assert [line.rpartition(" since")[0] for line in told[0].splitlines()] == [
        *("-- accel + backends: 11 lines, +4", "-- tests + rig: 5 lines, +0")
    ]
    assert told[1].startswith("-- accel + backends: 11 lines, +4 since")
