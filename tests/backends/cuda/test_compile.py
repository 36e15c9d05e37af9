"""Compiling the cuda backend's kernels: offline for several architectures, and the cache on disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accel
from accel import BackendUnavailable
from accel.backends.cuda import backend, compile, declarations, host
from accel.backends.cuda import descriptors as work
from accel.backends.cuda.declarations import constant, enumerators, structure
from accel.codec.jpeg import header_fields, idct, layout_fields
from accel.system.native import object_cache
from rig.ptx.device import ptx_of_source
from tests.support.cuda import DEVICE, needs_compiler
from tests.support.processes import finished, started

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
MOST_REGISTERS = 80  # three blocks of 256 threads on a multiprocessor
MOST_SHARED = 48 << 10


@pytest.mark.parametrize(
    "arch", [arch if arch == "sm_90" else pytest.param(arch, marks=pytest.mark.sweep) for arch in ARCHITECTURES]
)
@pytest.mark.parametrize("unit", compile.UNITS)
def test_kernels_fit_the_device(
    unit: str, arch: str, record_property: pytest.RecordProperty, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.core", reason="NVRTC is used through cuda.core")
    code, usages = compile.build(unit, arch)
    assert code.startswith(b"\x7fELF")
    if not usages and DEVICE != "cpu":
        pytest.skip("ptxas reported nothing on a machine with a GPU (cuda.core 1.2.0); other machines check its report")
    assert {usage.kernel for usage in usages} == set(compile.UNITS[unit])
    for usage in usages:
        record_property(f"{usage.kernel} {arch}", usage._asdict())
        assert usage.spilled == 0, usage
        assert 0 < usage.registers <= MOST_REGISTERS, usage
        assert usage.shared <= MOST_SHARED, usage
    monkeypatch.setattr(compile, "build", lambda *_: (code, usages))
    assert compile.cubin(unit, arch) == code  # what launches them, as rig/driver.py does, need not compile them again


def test_what_ptxas_reports_is_read() -> None:
    log = """ptxas info    : Compiling entry function 'pass3' for 'sm_90'
ptxas info    : Function properties for pass3
ptxas         .     0 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 16144 bytes smem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers
"""
    assert compile.usage(log) == [compile.Usage("pass3", 80, 20, 16144), compile.Usage("other", 16, 0, 0)]


def arithmetic(unit: str, **changed: Any) -> set[str]:
    """The instructions of its PTX that round, or call; and what else should not be there."""
    pytest.importorskip("cuda.core", reason="it knows NVRTC's options")
    text = ptx_of_source((compile.SOURCES / f"{unit}.cu").read_text(), unit, **changed)
    found = re.findall(r"\b(?:fma|mad|div|rcp|sqrt)\.\S*f(?:32|64)\b|\bcall\b|__local_depot|\S+\.ftz\b", text)
    return set(found)


@pytest.mark.parametrize("unit", compile.UNITS)
def test_arithmetic_rounds_as_on_the_host(unit: str) -> None:
    """No contraction but the one that is asked for, no approximate division; and no calls, nothing on a stack."""
    fused = {"fma.rn.f32"} if unit == "effects/effects" else set()  # filter.h
    assert arithmetic(unit) <= {"div.rn.f32", "div.rn.f64", "rcp.rn.f64"} | fused


def test_other_arithmetic_would_show() -> None:
    assert "fma.rn.f64" in arithmetic("coefficients", fma=True)
    assert not {"div.rn.f32", "div.rn.f32.ftz"} & arithmetic("effects/effects", prec_div=False)


def test_that_there_is_no_nvrtc_is_said_at_the_switch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("cuda.core", reason="without it that is said")
    monkeypatch.setattr(backend, "missing_gpu", lambda *_: None)
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path))
    assert backend.CudaBackend.unavailable() is None
    monkeypatch.setattr(compile, "_nvrtc", Path("no such thing"))
    with pytest.raises(BackendUnavailable, match="NVRTC cannot be loaded"):
        accel.set_image_backend("cuda")
    (tmp_path / "passes-sm_90-1.cubin").touch()
    assert backend.CudaBackend.unavailable() is None, "the kernels may be there already"


def test_an_unknown_architecture_is_named() -> None:
    pytest.importorskip("cuda.core", reason="NVRTC is used through cuda.core")
    with pytest.raises(BackendUnavailable, match=r"NVRTC cannot compile coefficients\.cu for sm_7"):
        compile.build("coefficients", "sm_7")


def test_cubins_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.core", reason="NVRTC is used through cuda.core")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path))
    first = compile.cubin("coefficients", "sm_90")
    monkeypatch.setattr(compile, "build", lambda *_: pytest.fail("compiled again"))
    assert compile.cubin("coefficients", "sm_90") == first
    with pytest.raises(pytest.fail.Exception):
        compile.cubin("coefficients", "sm_80")


def test_cubins_are_not_loaded_from_where_others_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "kept"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(compile, "build", lambda *_: (b"planted", []))
    assert compile.cubin("coefficients", "sm_90") == b"planted"
    (tmp_path / "kept").chmod(0o777)
    monkeypatch.setattr(compile, "build", lambda *_: (b"own", []))
    assert compile.cubin("coefficients", "sm_90") == b"own"
    monkeypatch.setattr(compile, "build", lambda *_: pytest.fail("compiled again"))
    assert compile.cubin("coefficients", "sm_90") == b"own"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "not" / "yet"))
    return tmp_path / "not" / "yet"


class Builder:
    """Counts how often it is asked."""

    def __init__(self, content: bytes = b"kernels") -> None:
        self.content = content
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return self.content


def test_built_once(folder: Path) -> None:
    build = Builder()
    assert [object_cache.cached("a", build) for _ in range(3)] == [b"kernels"] * 3
    assert build.calls == 1
    assert [path.name for path in folder.iterdir()] == ["a"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:10],
        lambda data: b"",
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"something else altogether, and longer than a digest",
    ],
)
def test_a_damaged_file_is_built_again(folder: Path, damage: object) -> None:
    build = Builder()
    object_cache.cached("a", build)
    (folder / "a").write_bytes(damage((folder / "a").read_bytes()))  # type: ignore[operator]
    assert object_cache.cached("a", build) == b"kernels"
    assert build.calls == 2
    assert object_cache.cached("a", build) == b"kernels"
    assert build.calls == 2


def test_another_entrys_file_is_built_again(folder: Path) -> None:
    object_cache.cached("a", Builder(b"of a"))
    (folder / "b").write_bytes((folder / "a").read_bytes())
    assert object_cache.cached("b", Builder(b"of b")) == b"of b"


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "file"))
    assert object_cache.cached("a", Builder()) == b"kernels"
    with pytest.raises(OSError):
        object_cache.cached_path("a", Builder())


def test_a_failed_build_leaves_nothing(folder: Path) -> None:
    def build() -> bytes:
        raise BackendUnavailable("no")

    with pytest.raises(BackendUnavailable):
        object_cache.cached("a", build)
    assert not folder.exists() or not list(folder.iterdir())


def test_the_sources_are_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compile.key("sm_90")
    assert before == compile.key("sm_90") != compile.key("sm_80")
    shutil.copytree(compile.SOURCES, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(compile, "SOURCES", tmp_path)
    assert compile.key("sm_90") == before
    with (tmp_path / "shim.h").open("a") as header:
        header.write("\n")
    assert compile.key("sm_90") != before


RACE = """
import sys, time
from accel.system.native import object_cache
def build():
    time.sleep(0.05)
    return b"kernels" * 100_000
time.sleep(max(float(sys.argv[1]) - time.time(), 0))
assert object_cache.cached("a", build) == b"kernels" * 100_000
"""


@pytest.mark.sweep
def test_processes_race(folder: Path) -> None:
    import time

    start = str(time.time() + 1)
    for racer in [started(RACE, start) for _ in range(4)]:
        status, _, errors = finished(racer)
        assert status == 0, errors
    assert [path.name for path in folder.iterdir()] == ["a"]
    assert object_cache.cached("a", lambda: pytest.fail("not kept")) == b"kernels" * 100_000


# -- structures that Python reads in the sources ---------------------------------------------------------------------


STRUCTURES = {
    "pass.h": ("CoefficientJob", "Axis", "Pass"),
    "effects/effect.h": ("Effect",),
    "effects/statistic.h": ("Counters",),
    "patch.cu": ("Patch",),
    "jpeg/symbols.h": ("Picture", "Component", "State", "Tile", "Span", "Place", "Codes", "Aim", "Tables"),
}
NUMBERS: dict[str, Mapping[str, int]] = {
    "shim.h": {"THREADS": work.THREADS},
    "pass.h": work.MODES,
    "tile.h": {"ROWS": work.TILE_ROWS, "COLUMNS": work.TILE_COLUMNS},
    "effects/effect.h": work.EFFECT_OPS,
    "effects/filter.h": {"TILE": work.TILE, "PIXELS": constant("effects/filter.h", "PIXELS")},
    "effects/statistic.h": {"MEASURED": work.MEASURED, "sizeof(Counters)": work.COUNTERS},
    "patch.cu": {"LINES": work.LINES},
    "jpeg/picture.h": {
        name: constant("jpeg/picture.h", name) for name in ("TABLES", "BLOCK", "GROUP", "PIECES", "PIECE", "SPAN")
    },
    "jpeg/pixels.cu": {"SAFE_SUM": idct.SAFE_SUM, "MAX_QUANT": idct.MAX_QUANT},
}
"""Values of C++, by the file that has them."""
TYPES = {"f8": "double", "i4": "int", "i8": "i64", "u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64"}


def claims(name: str, dtype: np.dtype[Any]) -> list[str]:
    """What a structure's compiler must find true."""
    found = [f"sizeof({name}) == {dtype.itemsize}", f"alignof({name}) == {dtype.alignment}"]
    for field, (kind, offset, *_) in (dtype.fields or {}).items():
        found += [f"offsetof({name}, {field}) == {offset}", f"sizeof({name}::{field}) == {kind.itemsize}"]
        if kind.base.names is None:
            item = f"std::remove_all_extents_t<decltype({name}::{field})>"
            found.append(f"std::is_same<{item}, {TYPES[kind.base.str[1:]]}>::value")
    return found


def refused(file: str, claims: list[str], path: Path) -> list[str]:
    """Those of the claims that the host's compiler does not find true."""
    asserted = [f'static_assert({claim}, "{number}");' for number, claim in enumerate(claims)]
    lines = ["#include <cstddef>", "#include <type_traits>", f'#include "{file}"', *asserted]
    (path / "claims.cpp").write_text("\n".join(lines))
    command = [host.COMPILER, "-std=c++17", "-fsyntax-only", "-I", str(host.SOURCES), str(path / "claims.cpp")]
    english = {**os.environ, "LC_ALL": "C"}
    errors = subprocess.run(command, capture_output=True, text=True, check=False, env=english).stderr
    assert errors.count("error:") == errors.count("static assertion failed"), errors
    return [claim for number, claim in enumerate(claims) if f"static assertion failed: {number}\n" in errors]


@needs_compiler
@pytest.mark.parametrize("file", STRUCTURES)
def test_structures_are_those_of_the_compiler(file: str, tmp_path: Path) -> None:
    for name in STRUCTURES[file]:
        assert refused(file, claims(name, structure(file, name)), tmp_path) == []


@needs_compiler
@pytest.mark.parametrize("file", NUMBERS)
def test_numbers_are_those_of_the_compiler(file: str, tmp_path: Path) -> None:
    assert refused(file, [f"{name} == {value}" for name, value in NUMBERS[file].items()], tmp_path) == []


@needs_compiler
def test_other_declarations_would_show(tmp_path: Path) -> None:
    wrong = ["LINES == 7", "offsetof(Patch, top) == 32", "std::is_same<decltype(Patch::top), u32>::value"]
    assert refused("patch.cu", ["LINES == 8", *wrong], tmp_path) == wrong


def test_fields_of_all_types_are_packed() -> None:
    for code in declarations._CODES.values():
        packed = work.packer(np.dtype([("field", code, (2,))]))(1, 2)
        assert packed == np.array([1, 2], code).tobytes()


def test_what_is_not_declared_is_named() -> None:
    for missing in (lambda: constant("shim.h", "THREAD"), lambda: structure("pass.h", "Passes")):
        with pytest.raises(LookupError, match=r"\.h does not declare .*(THREAD|Passes)"):
            missing()


def test_codes_are_the_decoders_on_the_host() -> None:
    for enum, fields in (("Upsampling", layout_fields), ("Colour", header_fields)):
        numbers = enumerators("jpeg/picture.h", enum)
        assert numbers == {name: getattr(fields, name) for name in numbers}
