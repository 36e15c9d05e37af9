"""Reading declarations from the kernels' sources: structures, constants, enums and kernels.

The compilers read the same text, so a size or a field is written down only once. Of C++ this parser knows only what
these sources have at the beginning of a line: plain data in a ``struct``, integer expressions in a ``constexpr``, an
``enum`` that counts from 0, and lists as in ``effects/effect.h``, of which enums may be made.
"""

from __future__ import annotations

import re
from collections import namedtuple
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

SOURCES = Path(__file__).resolve().parent

_CODES = {
    "u8": "u1",
    "u16": "u2",
    "u32": "u4",
    "u64": "u8",
    "i16": "i2",
    "int": "i4",
    "i64": "i8",
    "float": "f4",
    "double": "f8",
}
"""NumPy's codes for C++ types."""


def structure(file: str, name: str) -> np.dtype[Any]:
    """The dtype of a structure as C++ lays it out, with nested structures and arrays."""
    fields = []
    for kind, names in re.findall(r"(\w+) ([^;]+);", _found(file, rf"^struct {name} \{{(.*?)^\}};")):
        item: Any = _CODES.get(kind) or structure(file, kind)
        for each in names.split(","):
            field, *sizes = re.findall(r"[^][]+", each.strip())
            fields.append((field, item, tuple(_value(file, size) for size in sizes)))
    return np.dtype(fields, align=True)


def positions(dtype: np.dtype[Any]) -> Any:
    """The positions of a structure's fields, in 32-bit words, by their names."""
    fields: Any = dtype.fields
    return namedtuple("positions", fields)(*(fields[name][1] // 4 for name in fields))


def constant(file: str, name: str) -> int:
    """The value of a constant, which may refer to others."""
    return _value(file, _found(file, rf"^constexpr (?:int|u32) (?:[^;]*, )?{name} = ([^,;]+)[,;]"))


def _value(file: str, expression: str) -> int:
    numbers = re.sub(r"\b[A-Z]\w*", lambda name: str(constant(file, name[0])), expression)
    value: int = eval(numbers.replace("/", "//"))
    return value


def enumerators(file: str, name: str) -> dict[str, int]:
    """An enum's names and numbers."""
    body = _found(file, rf"^enum {name} : int \{{(.*?)\}};")
    listed = re.sub(r"(\w+)\(\w+\)", lambda each: " ".join(entries(file, each[1])), body)
    return {each: number for number, each in enumerate(re.findall(r"\w+", listed))}


def entries(file: str, name: str) -> list[str]:
    """The names in a list."""
    return re.findall(r"\bOP\((\w+)", _found(file, rf"^#define {name}\(OP\)([^\n]*)"))


def kernels(file: str) -> tuple[str, ...]:
    """The kernels of a translation unit."""
    return tuple(re.findall(r"^KERNEL\((\w+)", _text(file), re.MULTILINE))


def _found(file: str, pattern: str) -> str:
    found = re.search(pattern, _text(file), re.MULTILINE | re.DOTALL)
    if found is None:
        raise LookupError(f"{file} does not declare {pattern}")
    return found[1]


@cache
def _text(file: str) -> str:
    """A source without comments, with included files inserted."""
    text = re.sub(r"//[^\n]*|\\\n", "", (SOURCES / file).read_text())
    return re.sub(r'^#include "(.+)"', lambda name: _text(name[1]), text, flags=re.MULTILINE)
