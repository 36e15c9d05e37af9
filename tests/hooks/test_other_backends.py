"""Backends of other distributions: found by their entry points, asked for their reasons, never imported early."""

import re
from pathlib import Path

from accel import backend as registry
from accel.backend import backend_of
from accel.processes import switch
from tests.support import helpers

ENTRIES = {
    "dummy": "dummy_accel:Dummy",
    "absent": "dummy_accel:Absent",
    "grumpy": "dummy_accel:Grumpy",
    "broken": "dummy_accel.broken:Backend",
    "hollow": "dummy_accel:Hollow",
    "partial": "dummy_accel:Partial",
    "least": "dummy_accel:Least",
    "runless": "dummy_accel:Runless",
    "deviceless": "dummy_accel:Deviceless",
    "onless": "dummy_accel:Onless",
}

DUMMY_MODULE = '''
"""A third party's backends."""
from dataclasses import dataclass

from accel.backend import AcceleratorBackend, HostBackend, Options, find, instance


@dataclass(frozen=True)
class DummyOptions(Options):
    level: int = 1


class Dummy:
    """Lends the cpu backend's hands, and keeps count; it derives from nothing of accel's."""

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


class Partial:
    Options, devices, auto_rank, host = Options, ("cuda",), None, "cpu"

    @classmethod
    def unavailable(cls, options=None):
        return None


class Least(HostBackend):
    def run(self, plan, allocate):
        return self.on_host.run(plan, allocate)


class Runless(HostBackend):
    pass


class Deviceless(AcceleratorBackend):
    def run_on(self, plan, device):
        raise AssertionError


class Onless(AcceleratorBackend):
    devices = ("cuda",)
'''


def distribution(folder: Path, name: str, entries: dict[str, str]) -> None:
    """What an installation of backends leaves beside their modules."""
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{key} = {value}\n" for key, value in entries.items())
    (information / "entry_points.txt").write_text(f"[accel.backends]\n{lines}")


def test_good_and_bad_backends_of_an_installed_distribution(tmp_path: Path, paths: list[str]) -> None:
    (tmp_path / "dummy_accel").mkdir()
    (tmp_path / "dummy_accel" / "__init__.py").write_text(DUMMY_MODULE)
    (tmp_path / "dummy_accel" / "broken.py").write_text("import a_module_that_nobody_has\n")
    distribution(tmp_path, "dummy_accel_backend", ENTRIES)
    code = """
import faulthandler; faulthandler.dump_traceback_later(60, exit=True)
import accel, sys, torch
from PIL import Image
from torchvision.transforms.functional import to_tensor
accel.set_image_backend("cpu")
assert "dummy_accel" not in sys.modules
accel.set_image_backend("torchvision")
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
    ("dummy", {"levels": 1}, TypeError, "'dummy' has no option 'levels'; it takes exact, on_error, cache, level"),
    ("absent", {}, accel.BackendUnavailable, "'absent' cannot run here: the dummy chip is missing: plug one in"),
    ("broken", {}, accel.BackendUnavailable, "No module named 'a_module_that_nobody_has'"),
    ("hollow", {}, accel.BackendUnavailable, "has no 'Options'"),
    ("partial", {}, accel.BackendUnavailable, "has no 'prepare'"),
    ("runless", {}, accel.BackendUnavailable, "has no 'run' or 'run_all'"),
    ("deviceless", {}, accel.BackendUnavailable, "has no 'devices'"),
    ("onless", {}, accel.BackendUnavailable, "has no 'run_on'"),
]:
    try:
        accel.set_image_backend(name, **options)
    except error as raised:
        assert text in str(raised), str(raised)
    else:
        raise AssertionError(name)
    assert accel.get_image_backend() == "dummy"
accel.set_image_backend("torchvision")
with accel.image_backend("least", exact=False):
    lazy = to_tensor(Image.open(sys.argv[1]).resize((20, 30)))
    assert "backend: least" in accel.explain(lazy)
    assert torch.equal(lazy, expected)
backends = accel.image_backends()
assert backends["dummy"] is None and backends["cpu"] is None and backends["least"] is None
assert backends["absent"] == "the dummy chip is missing: plug one in"
assert "a_module_that_nobody_has" in backends["broken"]
assert "has no 'Options'" in backends["hollow"]
assert "driver says no" in backends["grumpy"]
accel.set_image_backend("auto")
assert accel.get_image_backend() == "dummy"
"""
    helpers.python(code, paths[0], path=tmp_path)


def test_the_backend_of_the_documentation(tmp_path: Path) -> None:
    """It is exact, moves pixels itself, and its host does the rest."""
    text = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text().partition("## Add a backend")[2]
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (_, module), (_, entry), *_ = blocks
    (tmp_path / "my_package.py").write_text(module)
    name, value = re.findall(r'^(\w+) = "(.*)"$', entry, re.MULTILINE)[0]
    distribution(tmp_path, "my_package", {name: value})
    code = f"""
import accel, torch
from accel import testing
from accel.runtime import read
decoded, real = [], read.pixels
for case in testing.cases():
    if case.size == (64, 48) and case.op in ("crop", "vflip", "pad", "resize", "equalize", "erase", "normalize"):
        testing.check(case, {name!r})
reason = "mine only moves pixels; the host ran it"
before = accel.stats()["fallbacks"][reason]
read.pixels = lambda *given: (decoded.append(given), real(*given))[1]
testing.check(testing.Case("hflip", (), (64, 48), "RGB"), {name!r})
assert accel.stats()["fallbacks"][reason] == before and len(decoded) == 1
testing.check(testing.Case("equalize", (), (64, 48), "L"), {name!r})
assert accel.stats()["fallbacks"][reason] == before + 1
"""
    helpers.python(code, path=tmp_path)


def test_the_group_of_entry_points_is_the_documented_one() -> None:
    assert registry.GROUP == "accel.backends"
    assert isinstance(backend_of(switch.select("cpu", {})), registry.Backend)
