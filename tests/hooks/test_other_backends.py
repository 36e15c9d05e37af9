"""Backends of other distributions: found by their entry points, asked for their reasons, never imported early."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accel import backend as registry
from accel import switch
from accel.backend import backend_of
from tests.support import helpers

DUMMY_PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "dummy-accel-backend"
version = "1.0"

[project.entry-points."accel.backends"]
dummy = "dummy_accel:Dummy"
absent = "dummy_accel:Absent"
grumpy = "dummy_accel:Grumpy"
broken = "dummy_accel.broken:Backend"
hollow = "dummy_accel:Hollow"

[tool.setuptools]
packages = ["dummy_accel"]
"""

DUMMY_MODULE = '''
"""A third party's backends."""
from dataclasses import dataclass

from accel.backend import Options, backend_of, find, instance


@dataclass(frozen=True)
class DummyOptions(Options):
    level: int = 1


class Dummy:
    """Lends the cpu backend's hands, and keeps count."""

    Options = DummyOptions
    devices = ()
    auto_rank = 1
    host = "dummy"
    plans = 0

    def __init__(self, options):
        self.level = options.level
        self.cpu = instance("cpu", find("cpu").Options())

    @classmethod
    def unavailable(cls, options=None):
        return None

    def prepare(self):
        self.cpu.prepare()

    def run(self, plan, allocate):
        type(self).plans += 1
        return self.cpu.run(plan, allocate)

    def run_all(self, plans, allocate):
        return [self.run(plan, allocate) for plan in plans]

    def describe(self, plan):
        return [f"runs: dummy at level {self.level}"]


class Absent(Dummy):
    auto_rank = 0

    @classmethod
    def unavailable(cls, options=None):
        return "the dummy chip is missing: plug one in"


class Grumpy(Dummy):
    auto_rank = 0

    @classmethod
    def unavailable(cls, options=None):
        raise RuntimeError("driver says no")


class Hollow:
    pass
'''


@pytest.fixture(scope="module")
def dummy_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A distribution with good and bad backends, installed with pip beside everything else."""
    project, target = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("site")
    (project / "pyproject.toml").write_text(DUMMY_PROJECT)
    (project / "dummy_accel").mkdir()
    (project / "dummy_accel" / "__init__.py").write_text(DUMMY_MODULE)
    (project / "dummy_accel" / "broken.py").write_text("import a_module_that_nobody_has\n")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(project)], check=True, timeout=120)
    return target


def test_a_backend_of_an_installed_distribution(dummy_distribution: Path, paths: list[str]) -> None:
    code = """
import faulthandler; faulthandler.dump_traceback_later(60, exit=True)
import accel, sys, torch
from PIL import Image
from torchvision.transforms.functional import to_tensor
assert "dummy_accel" not in sys.modules
expected = to_tensor(Image.open(sys.argv[1]).resize((20, 30)))
accel.set_image_backend("dummy", level=7)
import dummy_accel
lazy = to_tensor(Image.open(sys.argv[1]).resize((20, 30)))
assert type(lazy) is accel.LazyTensor
assert "backend: dummy" in accel.explain(lazy) and "dummy at level 7" in accel.explain(lazy)
assert dummy_accel.Dummy.plans == 0
assert torch.equal(lazy, expected)
assert dummy_accel.Dummy.plans == 1
for name, options, error, text in [
    ("dummy", {"levels": 1}, TypeError, "'dummy' has no option 'levels'; it takes exact, on_error, level"),
    ("absent", {}, accel.BackendUnavailable, "'absent' cannot run here: the dummy chip is missing: plug one in"),
    ("broken", {}, accel.BackendUnavailable, "No module named 'a_module_that_nobody_has'"),
    ("hollow", {}, accel.BackendUnavailable, "has no 'Options'"),
]:
    try:
        accel.set_image_backend(name, **options)
    except error as raised:
        assert text in str(raised), str(raised)
    else:
        raise AssertionError(name)
    assert accel.get_image_backend() == "dummy"
"""
    helpers.python(code, paths[0], path=dummy_distribution)


def test_reasons_and_auto_with_good_and_bad_backends(dummy_distribution: Path) -> None:
    code = """
import accel
backends = accel.image_backends()
assert backends["dummy"] is None and backends["cpu"] is None
assert backends["absent"] == "the dummy chip is missing: plug one in"
assert "a_module_that_nobody_has" in backends["broken"]
assert "has no 'Options'" in backends["hollow"]
assert "driver says no" in backends["grumpy"]
accel.set_image_backend("auto")
assert accel.get_image_backend() == "dummy"
"""
    helpers.python(code, path=dummy_distribution)


def test_nothing_of_a_backend_is_imported_before_it_is_asked_for(dummy_distribution: Path) -> None:
    code = """
import sys, accel
accel.set_image_backend("cpu")
assert "dummy_accel" not in sys.modules
"""
    helpers.python(code, path=dummy_distribution)


def test_the_group_of_entry_points_is_the_documented_one() -> None:
    assert registry.GROUP == "accel.backends"
    assert isinstance(backend_of(switch.select("cpu", {})), registry.Backend)
