"""The switch: names, options, contexts, and that nothing of accel's stays behind."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
from PIL import Image, ImageFile, JpegImagePlugin
from torch.utils.data._utils import collate, worker
from torchvision.datasets import folder
from torchvision.transforms import functional

import accel
from accel import backend as registry
from accel import hooks, switch
from accel.backend import backend_of
from accel.hooks import patch, random_params
from tests.support import helpers

# -- names and options --------------------------------------------------------------------------------------


def test_default_is_torchvision() -> None:
    assert accel.get_image_backend() == "torchvision"
    assert type(Image.open(BytesIO(helpers.jpeg(9, 9)))) is JpegImagePlugin.JpegImageFile


def test_set_and_get() -> None:
    accel.set_image_backend("cpu")
    assert accel.get_image_backend() == "cpu"
    assert isinstance(Image.open(BytesIO(helpers.jpeg(9, 9))), accel.LazyImage)
    accel.set_image_backend("torchvision")
    assert accel.get_image_backend() == "torchvision"


def test_auto_is_a_real_backend_that_runs_here() -> None:
    accel.set_image_backend("auto")
    assert accel.get_image_backend() in accel.image_backends()
    assert accel.get_image_backend() not in ("auto", "torchvision")
    assert accel.image_backends()[accel.get_image_backend()] is None


def test_image_backends_lists_every_backend_with_its_reason() -> None:
    backends = accel.image_backends()
    assert backends["torchvision"] is None
    assert backends["cpu"] is None
    assert all(reason is None or (isinstance(reason, str) and reason) for reason in backends.values())


def test_a_missing_dependency_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from accel.backends.cpu import backend as cpu

    monkeypatch.setattr(cpu, "find_spec", lambda name: None)
    assert "pip install numba" in str(accel.image_backends()["cpu"])
    with pytest.raises(accel.BackendUnavailable, match=r"'cpu' cannot run here: numba is missing: pip install numba"):
        accel.set_image_backend("cpu")
    with pytest.raises(accel.BackendUnavailable, match="cpu: numba is missing"):
        accel.set_image_backend("auto")
    assert accel.get_image_backend() == "torchvision"


USES: list[Callable[..., Any]] = [
    accel.set_image_backend,
    lambda *args, **options: accel.image_backend(*args, **options).__enter__(),
]


@pytest.mark.parametrize("use", USES, ids=["set", "context"])
@pytest.mark.parametrize(
    ("name", "options", "error", "text"),
    [
        ("gpu", {}, ValueError, r"unknown image backend 'gpu'; known are 'torchvision', 'auto', .*'cpu'"),
        ("CPU", {}, ValueError, r"unknown image backend 'CPU'"),
        ("", {}, ValueError, r"unknown image backend ''"),
        (None, {}, TypeError, r"must be a string, got NoneType"),
        (b"cpu", {}, TypeError, r"must be a string, got bytes"),
        ("cpu", {"thread": 2}, TypeError, r"'cpu' has no option 'thread'; it takes .*threads"),
        ("cpu", {"threads": 0}, ValueError, r"threads must be a positive int or None, got 0"),
        ("cpu", {"threads": 1.5}, ValueError, r"threads must be a positive int or None, got 1.5"),
        ("cpu", {"threads": True}, ValueError, r"threads must be a positive int or None, got True"),
        ("cpu", {"exact": 1}, TypeError, r"exact must be True or False, got 1"),
        ("cpu", {"on_error": "ignore"}, ValueError, r"on_error must be 'raise' or 'replace', got 'ignore'"),
        ("cpu", {"decode": "fast"}, ValueError, r"decode must be one of auto, .*got 'fast'"),
        ("torchvision", {"threads": 2}, TypeError, r"'torchvision' takes no options, got threads"),
        ("auto", {"nonsense": 2}, TypeError, r"has no option 'nonsense'"),
    ],
)
def test_wrong_names_and_options(use: Any, name: Any, options: Any, error: type[Exception], text: str) -> None:
    before = table()
    with pytest.raises(error, match=text):
        use(name, **options)
    assert accel.get_image_backend() == "torchvision"
    assert table() == before


def test_a_failed_switch_leaves_the_one_in_force() -> None:
    accel.set_image_backend("cpu", threads=2)
    in_force = switch.current()
    for name, options in (("gpu", {}), ("cpu", {"threads": -1}), ("cpu", {"no": 1})):
        with pytest.raises((ValueError, TypeError)):
            accel.set_image_backend(name, **options)
    assert switch.current() is in_force


def test_options_reach_the_backend_and_equal_ones_share_an_instance() -> None:
    with accel.image_backend("cpu", threads=3):
        first = backend_of(switch.current())
        assert first.options.threads == 3  # type: ignore[attr-defined]
    with accel.image_backend("cpu", threads=3):
        assert backend_of(switch.current()) is first
    with accel.image_backend("cpu", threads=4):
        assert backend_of(switch.current()) is not first


# -- contexts -----------------------------------------------------------------------------------------------


def test_contexts_nest_and_restore() -> None:
    accel.set_image_backend("cpu")
    with accel.image_backend("cpu", threads=1):
        inner = switch.current()
        with accel.image_backend("torchvision"):
            assert accel.get_image_backend() == "torchvision"
            with accel.image_backend("cpu", threads=2):
                assert switch.current().options.threads == 2  # type: ignore[attr-defined]
            assert accel.get_image_backend() == "torchvision"
        assert switch.current() is inner
    assert switch.current().options.threads is None  # type: ignore[attr-defined]


def test_context_is_restored_after_an_exception() -> None:
    with pytest.raises(KeyError, match="mine"), accel.image_backend("cpu"):  # noqa: PT012
        assert accel.get_image_backend() == "cpu"
        raise KeyError("mine")
    assert accel.get_image_backend() == "torchvision"


def test_the_default_may_change_inside_a_context() -> None:
    with accel.image_backend("cpu", threads=1):
        accel.set_image_backend("cpu", threads=2)
        assert switch.current().options.threads == 1  # type: ignore[attr-defined]
        accel.set_image_backend("torchvision")
        assert accel.get_image_backend() == "cpu"
        assert isinstance(Image.open(BytesIO(helpers.jpeg(9, 9))), accel.LazyImage)
    assert accel.get_image_backend() == "torchvision"


def in_thread(function: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(helpers.outcome(function)))
    thread.start()
    thread.join(30)
    return results[0]


def test_a_new_thread_sees_the_default_and_not_the_context() -> None:
    accel.set_image_backend("cpu")
    with accel.image_backend("torchvision"):
        assert in_thread(accel.get_image_backend) == "cpu"
    accel.set_image_backend("torchvision")
    with accel.image_backend("cpu"):
        assert in_thread(accel.get_image_backend) == "torchvision"
        kind = in_thread(lambda: type(Image.open(BytesIO(helpers.jpeg(9, 9)))))
        assert kind is JpegImagePlugin.JpegImageFile


def begun(name: str, **options: Any) -> Iterator[str]:
    with accel.image_backend(name, **options):
        yield accel.get_image_backend()
        yield accel.get_image_backend()


def test_a_block_that_another_context_leaves() -> None:
    """The generator of a loader, which a thread finishes."""
    opener = Image.OPEN["JPEG"]
    batches = begun("cpu")
    next(batches)
    assert accel.get_image_backend() == "cpu"
    assert in_thread(lambda: (list(batches), accel.get_image_backend())) == (["torchvision"], "torchvision")
    assert accel.get_image_backend() == "torchvision"
    assert Image.OPEN["JPEG"] is opener


def test_a_block_that_another_context_leaves_inside_one_of_its_own() -> None:
    batches = begun("cpu", threads=2)
    next(batches)

    def elsewhere() -> Any:
        with accel.image_backend("cpu", threads=3):
            batches.close()
            return switch.current().options.threads  # type: ignore[attr-defined]

    with accel.image_backend("cpu", threads=4):
        assert in_thread(elsewhere) == 3
        assert switch.current().options.threads == 4  # type: ignore[attr-defined]
    assert accel.get_image_backend() == "torchvision"


def test_a_block_that_is_collected() -> None:
    opener = Image.OPEN["JPEG"]
    batches = begun("cpu")
    next(batches)
    del batches
    assert accel.get_image_backend() == "torchvision"
    assert Image.OPEN["JPEG"] is opener


def test_blocks_of_generators_end_in_any_order() -> None:
    opener = Image.OPEN["JPEG"]
    first, second = begun("cpu", threads=1), begun("cpu", threads=2)
    next(first), next(second)
    first.close()
    assert switch.current().options.threads == 2  # type: ignore[attr-defined]
    second.close()
    assert accel.get_image_backend() == "torchvision"
    assert Image.OPEN["JPEG"] is opener


def test_a_block_in_a_copied_context() -> None:
    with accel.image_backend("cpu"):
        copied = contextvars.copy_context()
        assert copied.run(accel.get_image_backend) == "cpu"
    assert copied.run(accel.get_image_backend) == "torchvision"


def test_torchvision_inside_an_active_default_passes_straight_through(image_folder: Path) -> None:
    path = next(image_folder.rglob("*.jpg"))
    accel.set_image_backend("cpu")
    with accel.image_backend("torchvision"):
        with Image.open(path) as opened:
            assert type(opened) is JpegImagePlugin.JpegImageFile
            assert type(functional.to_tensor(opened)) is torch.Tensor
            assert type(functional.pad(opened, 3)) is Image.Image
        assert type(folder.default_loader(str(path))) is Image.Image
    assert isinstance(folder.default_loader(str(path)), accel.LazyImage)


def test_an_image_runs_on_the_backend_it_was_opened_under() -> None:
    data = helpers.jpeg(40, 30)
    with accel.image_backend("cpu"):
        lazy = Image.open(BytesIO(data))
    expected = functional.to_tensor(Image.open(BytesIO(data)).crop((3, 4, 30, 20)))
    with accel.image_backend("torchvision"):
        cropped = lazy.crop((3, 4, 30, 20))
        assert helpers.is_lazy(cropped)
        helpers.assert_same(functional.to_tensor(cropped), expected)
    helpers.assert_same(functional.to_tensor(lazy.crop((3, 4, 30, 20))), expected)


# -- what is replaced, and put back -------------------------------------------------------------------------

NOT_EVERYWHERE = ("os.environ", "torch._utils.ExceptionWrapper.__init__")
"""What is replaced where Ray is installed, and before Python 3.11."""


class Same:
    """An object, which is kept alive, and equal to itself only."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


Place = tuple[int, Any]
"""The id of a function, of what has an attribute or of a mapping; and a name or key in it."""


def place(row: patch.Patch) -> tuple[Place, Any]:
    """Where a row of the tables changes something, and what is there now."""
    found = row.find()
    if isinstance(row, patch.Attribute):
        owner, name, _ = found
        return (id(owner), name), Same(vars(owner).get(name))
    if isinstance(row, patch.Item):
        for key in row.keys[:-1]:
            found = found[key]
        return (id(found), row.keys[-1]), Same(found.get(row.keys[-1]))
    return (id(found), "__code__"), Same(found.__code__)


def table() -> dict[str, Any]:
    return {f"{row.name} {getattr(row, 'keys', '')}": place(row)[1] for row in hooks.PATCHES}


ORIGINALS: dict[str, Any] = {}
FUNCTIONS = (folder.pil_loader, functional.to_tensor, functional.pil_to_tensor, functional.normalize)


@pytest.fixture(autouse=True)
def _originals() -> None:
    """Those of the moment: torch.compile replaces ``torch.jit.trace`` when it is first used."""
    ORIGINALS.update(table())


def assert_installed(installed: bool) -> None:
    for name, value in table().items():
        if not name.startswith(NOT_EVERYWHERE):
            assert (value != ORIGINALS[name]) is installed, name
    for function in FUNCTIONS:
        assert hasattr(function, "__wrapped__") is installed


class State:
    """All that the modules of Pillow, torch and torchvision hold: names, functions, classes and mappings."""

    def __init__(self) -> None:
        self.parts: dict[int, dict[Any, Any]] = {}  # by the id of what they are parts of
        self.keep: list[Any] = []
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in ROOTS:
                self.look(module, 4)

    def look(self, value: Any, depth: int) -> None:
        kind = type(value)  # isinstance would ask some of them what they stand for
        if kind is ModuleType:
            parts = {name: part for name, part in vars(value).items() if type(part) is not ModuleType}
            parts = {name: part for name, part in parts.items() if not name.startswith("__")}
        elif kind in (staticmethod, classmethod):
            parts = {None: value.__func__}
        elif kind is FunctionType:
            parts = {**vars(value), **(value.__kwdefaults__ or {}), "__code__": value.__code__}
        elif issubclass(kind, dict):
            parts = dict(value)
        elif issubclass(kind, type) and value.__module__.split(".")[0] in ROOTS:
            parts = dict(vars(value))
        else:
            return
        if depth and id(value) not in self.parts:
            self.parts[id(value)] = parts
            self.keep.append(value)
            for part in parts.values():
                self.look(part, depth - 1)

    def changed(self) -> set[Place]:
        """What has changed since, of all that there was."""
        now = State().parts
        return {
            (owner, name)
            for owner, parts in self.parts.items()
            for name in parts.keys() | now.get(owner, parts).keys()
            if parts.get(name, Same) is not now.get(owner, parts).get(name, Same)
        }


ROOTS = ("PIL", "torch", "torchvision", "multiprocessing")


def test_the_tables_list_all_that_is_replaced() -> None:
    rows = {place(row)[0]: row.name for row in hooks.PATCHES}
    expected = {where for where, name in rows.items() if name not in NOT_EVERYWHERE}
    png = BytesIO()
    Image.new("RGB", (3, 2)).save(png, "PNG")
    with accel.image_backend("cpu"):  # what is imported, and kept, at the first switch
        pass
    before = State()
    with accel.image_backend("cpu", on_error="replace"):
        found = before.changed()
        Image.open(png)
        watched = before.changed() - found
    assert not before.changed(), "something is not put back"
    bodies = {owner for owner, name in found if name == "__code__"}
    found -= {(owner, name) for owner in bodies for name in ("__wrapped__", "_accel_instead")}
    assert found <= rows.keys(), "something is replaced that no table lists"
    assert expected <= found, "a table lists what is not replaced"
    assert watched == {(id(ImageFile.ImageFile), "load")}
    undo = patch.body(functional.get_dimensions, lambda original: original)
    assert (id(functional.get_dimensions), "__code__") in before.changed(), "it would not be seen"
    undo()


def test_every_name_is_the_original_again() -> None:
    assert_installed(False)
    accel.set_image_backend("cpu")
    assert_installed(True)
    accel.set_image_backend("torchvision")
    assert_installed(False)
    with accel.image_backend("cpu"):
        assert_installed(True)
    assert_installed(False)


def test_installs_are_counted() -> None:
    with accel.image_backend("cpu"):
        accel.set_image_backend("cpu")
        with accel.image_backend("cpu", threads=1):
            assert_installed(True)
        accel.set_image_backend("torchvision")
        assert_installed(True)
        accel.set_image_backend("cpu")
    assert_installed(True)
    accel.set_image_backend("cpu", threads=2)
    assert_installed(True)
    accel.set_image_backend("torchvision")
    assert_installed(False)


def test_what_others_register_meanwhile_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = collate.default_collate_fn_map
    for table, key in ((Image.OPEN, "JPEG"), (mapping, torch.Tensor)):
        monkeypatch.setitem(table, key, table[key])  # type: ignore[attr-defined]

    def opener(file: Any, filename: str | bytes = "") -> Image.Image:
        return JpegImagePlugin.jpeg_factory(file, filename)

    def collate_mine(tensors: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        return before(tensors, collate_fn_map=collate_fn_map).flip(0)

    accel.set_image_backend("cpu")
    before = mapping[torch.Tensor]
    Image.register_open("JPEG", opener, JpegImagePlugin._accept)
    mapping[torch.Tensor] = collate_mine
    accel.set_image_backend("torchvision")
    assert Image.OPEN["JPEG"] == (opener, JpegImagePlugin._accept)
    assert mapping[torch.Tensor] is collate_mine
    assert collate.default_collate([torch.zeros(2), torch.ones(2)]).tolist() == [[1, 1], [0, 0]]
    with accel.image_backend("cpu"):  # which begins with theirs
        assert isinstance(Image.open(BytesIO(helpers.jpeg(9, 9))), accel.LazyImage)
    assert Image.OPEN["JPEG"][0] is opener
    accel.set_image_backend("cpu")
    del mapping[torch.Tensor]
    accel.set_image_backend("torchvision")
    assert torch.Tensor not in mapping


def test_torchvision_contexts_install_nothing() -> None:
    with accel.image_backend("torchvision"):
        assert_installed(False)


def test_names_bound_early_are_caught_and_let_go() -> None:
    from torchvision.transforms.functional import to_tensor

    assert to_tensor is functional.to_tensor
    data = helpers.jpeg(20, 10)
    with accel.image_backend("cpu"):
        assert helpers.is_lazy(to_tensor(Image.open(BytesIO(data))))
    assert type(to_tensor(Image.open(BytesIO(data)))) is torch.Tensor


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_functions_can_still_be_scripted_and_inspected() -> None:
    import inspect

    signature = inspect.signature(functional.normalize)
    with accel.image_backend("cpu"):
        assert inspect.signature(functional.normalize) == signature
        scripted = torch.jit.script(torch.nn.Sequential(Normalized()))
        value = torch.rand(3, 4, 5)
        assert torch.equal(scripted(value), functional.normalize(value, [0.5] * 3, [0.25] * 3))


class Normalized(torch.nn.Module):
    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return functional.normalize(tensor, [0.5, 0.5, 0.5], [0.25, 0.25, 0.25])


def test_an_unknown_version_of_torchvision_is_refused_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(worker, "_worker_loop")
    with pytest.raises(accel.BackendUnavailable, match=r"_worker_loop.*It is tested with torch"):
        accel.set_image_backend("cpu")
    monkeypatch.undo()
    assert_installed(False)
    assert accel.get_image_backend() == "torchvision"
    accel.set_image_backend("cpu")
    assert_installed(True)


def test_switching_from_many_threads_at_once() -> None:
    start, failures = threading.Barrier(8), []
    data = helpers.jpeg(30, 20)
    expected = Image.open(BytesIO(data)).tobytes()

    def work(number: int) -> None:
        start.wait()
        for turn in range(60):
            with accel.image_backend("cpu" if (turn + number) % 2 else "torchvision"):
                name = accel.get_image_backend()
                opened = Image.open(BytesIO(data))
                if isinstance(opened, accel.LazyImage) != (name == "cpu") or opened.tobytes() != expected:
                    failures.append((number, turn, name, type(opened)))
            if turn % 7 == number % 7:
                accel.set_image_backend("cpu" if number % 2 else "torchvision")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    accel.set_image_backend("torchvision")
    assert_installed(False)
    assert switch._users == 0
    assert not hooks._undo


# -- other people's backends --------------------------------------------------------------------------------

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


def test_switching_seeds_no_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the host's nor an accelerator's, though the way parameters are drawn is checked by drawing some."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    monkeypatch.setattr(random_params, "_alike", {})
    before = helpers.random_states()
    with accel.image_backend("cpu"):
        assert random_params._alike  # it was checked
    assert not seeded
    assert helpers.random_states() == before
