"""The distribution: what a wheel holds, and which names are public."""

import configparser
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
PUBLIC = [
    *("AccelError", "BackendUnavailable", "DecodeError", "Future", "LazyImage", "LazyTensor", "__version__"),
    *("explain", "functional", "get_image_backend", "image_backend", "image_backends", "profile"),
    *("set_image_backend", "stats", "submit", "summary"),
]


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


def test_public_names() -> None:
    assert sorted(accel.__all__) == sorted(PUBLIC)
    assert all(hasattr(accel, name) for name in accel.__all__)
    assert len(set(accel.__all__)) == len(accel.__all__)


def test_errors_form_the_documented_tree() -> None:
    assert issubclass(accel.DecodeError, (accel.AccelError,))
    assert issubclass(accel.DecodeError, OSError)
    assert issubclass(accel.BackendUnavailable, accel.AccelError)
    assert issubclass(accel.BackendUnavailable, RuntimeError)
    for error in (accel.AccelError, accel.DecodeError, accel.BackendUnavailable):
        assert str(error("one string")) == "one string"
