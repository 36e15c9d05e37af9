"""What is read in the kernels' sources is what the compilers read there."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accel.backends.cuda import declarations, host
from accel.backends.cuda import descriptors as work
from accel.backends.cuda.declarations import constant, enumerators, structure
from accel.codec.jpeg import header_fields, idct, layout_fields
from tests.support.cuda import needs_compiler

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
        name: constant("jpeg/picture.h", name) for name in ("TABLES", "BLOCK", "GROUP", "SUBSEQUENCE", "SPAN")
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
