"""Compiled code: made of what the sources say, kept where it serves again, and loaded without numba."""

import ast
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from accel import __main__, backend
from accel.codec import arrow, jpeg
from accel.system.imports import LazyModule
from accel.system.native import units
from tests.support import helpers, inside

ROOT = Path(units.__file__).resolve().parents[2]
for name in backend.availability():
    backend.find(name)  # imports their units
UNITS, COMPILER = units.units(), units._COMPILER


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> units.Unit:
    """One that is compiled quickly, not loaded yet."""
    inside.forget_units(monkeypatch)
    made = units.Unit("markers", *jpeg.MARKERS.sources, seconds=1)
    made.function("codec.jpeg.markers", "first_marker", "u1[1] int")
    return made


def works(unit: units.Unit) -> bool:
    return unit.functions[0](np.array([1, 0xFF, 0, 0xFF, 0xD9], np.uint8), 0) == 0xD9


def again(unit: units.Unit) -> units.Unit:
    """The same in another process."""
    other = units.Unit(unit.name, *unit.sources, seconds=1)
    for function in unit.functions:
        module, name, signature = function.order
        other.function(module.removeprefix("accel."), name, signature)
    return other


def test_compiled_once_and_again_where_its_file_is_damaged(folder: Path, unit: units.Unit) -> None:
    assert units.ready([unit]) == [unit]
    assert works(unit)
    (path,) = folder.iterdir()
    assert path.name == unit.file
    assert path.stat().st_mode & 0o777 == 0o644  # another user's process may read it
    sound = path.read_bytes()
    for left in (0, 10, len(sound) // 2, len(sound) - 1):
        other = again(unit)
        assert units.ready([other]) == []
        assert works(other)
        path.write_bytes(sound[:left])
        other = again(unit)
        assert units.ready([other]) == [other], left
        assert works(other)


def test_it_is_not_loaded_from_where_others_may_write(
    folder: Path, unit: units.Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert units.ready([unit]) == [unit]
    folder.chmod(0o777)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for expected in ([True], []):
        other = again(unit)
        assert [True for _ in units.ready([other])] == expected, "it is compiled elsewhere, and found there"
        assert works(other)


def test_what_cannot_be_kept_is_used_all_the_same(
    tmp_path: Path, unit: units.Unit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "file"))
    inside.forget_messages()
    with caplog.at_level(logging.WARNING, "accel"):
        for each in (unit, again(unit)):
            assert units.ready([each]) == [each]
            assert works(each)
    units.log.flush()
    told = [record.getMessage() for record in caplog.records if "not kept" in record.getMessage()]
    assert len(told) == 1
    assert "ACCEL_CACHE_DIR" in told[0]


def test_without_processes_it_is_compiled_here(folder: Path, unit: units.Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    for executable in (None, "/not/there", shutil.which("true")):
        shutil.rmtree(folder, ignore_errors=True)
        monkeypatch.setattr(units, "get_executable", lambda executable=executable: executable)
        each = again(unit)
        assert units.ready([each]) == [each]
        assert works(each)


def test_without_lean_it_is_compiled_here(folder: Path, unit: units.Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of numba that lacks a name which ``lean`` imports."""
    monkeypatch.setitem(sys.modules, "accel.system.native.lean", None)  # importing it fails
    monkeypatch.delitem(sys.modules, "accel.system.native.compiling", raising=False)
    monkeypatch.setattr(units, "_compiling", LazyModule("accel.system.native.compiling"))
    monkeypatch.setattr(units, "get_executable", lambda: None)
    assert units.ready([unit]) == [unit]
    assert works(unit)


@pytest.mark.sweep
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_processes_can_compile_it(unit: units.Unit) -> None:
    """A unit they cannot compile is compiled here, which takes longer; what makes arrays must say so."""
    assert len(list(units._process(sys.executable, [unit]))) == 1


ROWS = """
import numpy as np
from PIL import Image
from accel.codec import arrow
from accel.system.native import units
from accel.system.imports import LazyModule
compiled = [unit.name for unit in units.ready([arrow.UNIT])]
noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
found = arrow.region(Image.fromarray(noise), (3, 5, 20, 30))
print(compiled, found is None or bytes(found) == noise[3:23, 5:35].tobytes())
"""


def run(package: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **more: str) -> str:
    """The output of ``ROWS`` by a copy of the package; ``more`` makes it an interpreter of its own."""
    with monkeypatch.context() as patch:
        patch.chdir(package.parent)
        patch.setenv("ACCEL_CACHE_DIR", str(folder))
        patch.setenv("PYTHONPATH", str(package.parent))
        return helpers.python(ROWS, path=package.parent, environment=more or None).strip()


@pytest.mark.skipif(not hasattr(Image.Image, "__arrow_c_array__"), reason="this Pillow shows no memory to be packed")
def test_an_edit_of_an_inner_file_is_compiled_and_a_copy_elsewhere_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first" / "accel", tmp_path / "second" / "accel"
    for package in (first, second):
        shutil.copytree(ROOT, package, ignore=shutil.ignore_patterns("__pycache__"))
    kept, copied = tmp_path / "kept", tmp_path / "copied"
    assert run(first, kept, monkeypatch) == "['packing'] True"
    shutil.copytree(kept, copied, copy_function=shutil.copy)  # not its times
    for path in (*copied.iterdir(), *second.rglob("*.py")):
        os.utime(path, (0, 0))
    assert run(second, copied, monkeypatch, NUMBA_DISABLE_JIT="1", PYTHONHASHSEED="1") == "[] True"

    inner = second / "system" / "native" / "memory.py"
    text = inner.read_text()
    edited = text.replace("return builder.gep(arguments[0], [arguments[1]])", "return arguments[0]")
    assert edited != text
    inner.write_text(edited)  # all rows go to the first one's place
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert run(second, copied, monkeypatch) == "['packing'] False"


def imported(path: Path) -> Iterator[Path]:
    """The files of accel that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            elif (node.module or "").startswith("accel"):
                base = ROOT.joinpath(*(node.module or "").split(".")[1:])
            else:
                continue
            places = [base.with_suffix(".py"), *(base / f"{name.name}.py" for name in node.names)]
            yield from (place for place in places if place.is_file())


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_all_sources_count(unit: units.Unit) -> None:
    counted = {path for pattern in (*unit.sources, *COMPILER) for path in ROOT.glob(pattern)}
    assert all(list(ROOT.glob(pattern)) for pattern in unit.sources)
    ahead = [ROOT.joinpath(*function.order[0].split(".")[1:]).with_suffix(".py") for function in unit.functions]
    seen: set[Path] = set()
    while ahead:
        path = ahead.pop()
        if path not in seen:
            seen.add(path)
            ahead += imported(path)
    assert seen <= counted


def test_only_compiled_sources_import_numba() -> None:
    known = {path.resolve() for unit in UNITS for pattern in unit.sources for path in ROOT.glob(pattern)}
    known |= {ROOT / name for name in COMPILER}
    for path in ROOT.rglob("*.py"):
        if re.search(r"^\s*(from|import) (numba|llvmlite)", path.read_text(), re.MULTILINE):
            assert path.resolve() in known, path


def test_processes_that_compile_import_no_torch() -> None:
    modules = sorted({function.order[0] for unit in UNITS for function in unit.functions})
    code = f"""
import sys
from importlib import import_module
from pathlib import Path
sys.path.insert(0, {str(ROOT / "system/native")!r})
import compiler_process
sys.path.pop(0)
sys.meta_path.insert(0, compiler_process.Bare(Path({str(ROOT)!r})))
for name in ["accel.system.native.compiling", *{modules!r}]:
    import_module(name)
print([name for name in ("torch", "PIL", "rich", "accel.hooks.patch") if name in sys.modules])
"""
    assert helpers.python(code, environment={}) == "[]\n"


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(8, np.int8),
        np.zeros(8, ">u2"),
        np.zeros((2, 4), np.uint8),
        np.zeros(8, np.uint8)[::2],
        b"bytes",
        [1, 2],
        None,
    ],
    ids=["items", "byte order", "dimensions", "strides", "bytes", "list", "None"],
)
def test_wrong_arrays_are_refused(array: object) -> None:
    with pytest.raises(TypeError, match=r"first_marker takes \(u1\[1\] int\)"):
        jpeg.first_marker(array, 0)


def test_what_may_not_be_written_is_refused() -> None:
    levels = np.zeros(4, np.uint8)
    levels.flags.writeable = False
    with pytest.raises(TypeError, match="luma takes"):
        arrow._pack_luma(0, levels)


def test_warm(capsys: pytest.CaptureFixture[str]) -> None:
    """Into the tests' own cache, where most of it is."""
    assert __main__.main(["warm", "--processes", "2"]) == 0
    assert all(units.object_cache.read(unit.file) is not None for unit in UNITS)
    assert "kept in" in capsys.readouterr().out
    assert __main__.main(["warm"]) == 0
    assert f"all {len(UNITS)} units were there" in capsys.readouterr().out


def test_warm_says_that_nothing_is_kept(
    tmp_path: Path, unit: units.Unit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "file"))
    assert __main__.main(["warm"]) == 1
    assert "not kept: markers" in capsys.readouterr().err


def test_what_is_warm_neither_compiles_nor_imports_numba() -> None:
    assert __main__.main(["warm"]) == 0
    code = """
import io, sys
import accel, torch
from PIL import Image
from accel.system.native import units
from accel.system.imports import LazyModule
from torchvision import transforms as T
units._in_processes = units._compiled_here = None
accel.set_image_backend("cpu")
transform = T.Compose([
    T.RandomResizedCrop(24), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandAugment(), T.GaussianBlur(3), T.RandomRotation(9),
    T.ToTensor(), T.Normalize(0.5, 0.2)])
stream = io.BytesIO()
Image.radial_gradient("L").convert("RGB").save(stream, "JPEG")
batch = torch.stack([transform(Image.open(stream)) for _ in range(16)])
print(batch.isfinite().all().item(), "numba" in sys.modules, accel.stats()["fallbacks"])
"""
    assert helpers.python(code) == "True False {}\n"
