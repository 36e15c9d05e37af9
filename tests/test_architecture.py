"""Data flows one way: every room of accel imports only from the rooms below it, and the core names no backend."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import accel

ROOT = Path(accel.__file__).parent
# from the ground up; what stands on one line may use the lines before it
ROOMS = (
    "errors version",
    "system",
    "native options",
    "codec",
    "recipe",
    "ops",
    "planning",
    "backend",
    "switch",
    "runtime",
    "workers",
    "lazy",
    "functional explanation testing",
    "hooks",
    "",  # accel itself
    "cli",
    "__main__",
)
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms.split(" ")}
FILES = sorted(path for path in ROOT.rglob("*.py") if "backends" not in path.relative_to(ROOT).parts)


def module(path: Path) -> str:
    return ".".join(("accel", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module(path) for path in FILES}


def room(name: str) -> str:
    return [*name.split("."), ""][1]


def imported(tree: ast.AST, *, at_the_top: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        if at_the_top and getattr(node, "col_offset", 0):
            continue  # in a function, or for the type checker
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in MODULES else node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: module(path))
def test_rooms_use_only_the_rooms_below_them(path: Path) -> None:
    here = room(module(path))
    for name in imported(ast.parse(path.read_text()), at_the_top=True):
        if name.split(".")[0] == "accel" and room(name) != here:
            assert FLOOR[room(name)] < FLOOR[here], f"{module(path)} imports {name}"


def test_there_are_no_circles() -> None:
    uses = {module(path): set(imported(ast.parse(path.read_text()), at_the_top=True)) & MODULES for path in FILES}
    done: set[str] = set()
    while ready := {name for name in uses.keys() - done if uses[name] <= done | {name}}:
        done |= ready
    assert done == uses.keys(), f"a circle within {sorted(uses.keys() - done)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: module(path))
def test_the_core_names_no_backend(path: Path) -> None:
    names = imported(ast.parse(path.read_text()), at_the_top=False)
    assert not [name for name in names if name.startswith("accel.backends")]
