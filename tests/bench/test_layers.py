"""bench stands on the rig and accel, the rig on accel; neither imports tests, or changes the path to import from."""

import ast
from collections.abc import Iterator
from pathlib import Path

from bench.machine import ROOT

FILES = sorted([*(ROOT / "bench").rglob("*.py"), *(ROOT / "rig").rglob("*.py")])
MAY_IMPORT = {"bench": {"bench", "rig", "accel"}, "rig": {"rig", "accel"}}
OURS = {"accel", "bench", "rig", "tests"}


def name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name(path) for path in FILES}


def imported(path: Path) -> Iterator[str]:
    """Modules, those imported in functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            assert node.module
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield inner if inner in MODULES else node.module


def test_imports_point_one_way() -> None:
    for path in FILES:
        found = {each.split(".")[0] for each in imported(path)} & OURS
        assert found <= MAY_IMPORT[name(path).split(".")[0]], path


def test_nothing_changes_the_path() -> None:
    for path in FILES:
        attributes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
        assert "sys.path" not in map(ast.unparse, attributes), path


def test_there_are_no_circles() -> None:
    uses = {name(path): set(imported(path)) & MODULES - {name(path)} for path in FILES}
    done: set[str] = set()
    while ready := {each for each in uses.keys() - done if uses[each] <= done}:
        done |= ready
    assert done == uses.keys(), f"a circle within {sorted(uses.keys() - done)}"
