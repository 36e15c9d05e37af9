"""Data flows one way: every room of accel imports only from the rooms below it, wherever the import stands.

The checks take a tree as {module: source}, and are tried on small made-up trees besides.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import accel

ROOT = Path(accel.__file__).parent.parent

ROOMS = (
    ("errors", "what accel raises"),
    ("system", "the process and the machine: forks, memory, cores, counters, the log, replaced files"),
    ("system.native", "functions compiled to machine code, and their cache"),
    ("codec", "bytes to pixels: headers, JPEG decoders, Pillow's memory"),
    ("codec.files", "files read whole, into memory that is used again"),
    ("cache", "what is kept from run to run: a folder with a table and segments; knows no pixels"),
    ("packs", "a dataset in shards with an index: written, checked and unpacked; a dataset and a sampler of it"),
    ("recipes recipes.options", "a backend's options, and the selection of a backend: plain data"),
    ("recipes.recipe", "a source of pixels and the steps recorded on it: plain data"),
    ("recipes.sources", "many sources in one piece of memory: plain data"),
    ("recipes.rows", "many recipes of one structure, as columns of numbers: plain data"),
    ("recipes.arrived", "recipes of a batch that a worker has finished, none of which is made before it is looked at"),
    ("recipes.drawn", "images that were drawn one by one, which become rows"),
    ("ops", "the table of ops: a row for each, with torchvision's function as the reference"),
    ("planning", "recipes to plans: stages, lookup tables, patches"),
    ("backend", "the interface of a backend, and the entry points where they are found"),
    ("runtime.memo", "what a cache has of a batch, and what is put in: found, planned, computed, kept"),
    ("runtime", "plans carried out: reading, threads, streams, prefetching"),
    ("processes", "between DataLoader workers and their parent: messages and shared memory"),
    ("processes.launch", "processes that start under the switch: what they are told, and how they come to know"),
    ("processes.switch", "which backend is in force"),
    ("backends", "cpu, cuda and dali, each on its own, and what they share"),
    ("lazy", "images, tensors and batches whose pixels are not computed yet"),
    ("functional lazy.explanation testing", "accel.functional, accel.explain, and the conformance suite of a backend"),
    ("resuming", "where a DataLoader stands in its epoch, as plain data, and the proof that it goes on from there"),
    ("sinking", "batches ahead on the device, and training steps that run without the host"),
    ("hooks", "what is replaced in Pillow, torchvision, DataLoader and others"),
    ("wire", "recipes in bytes, for other machines: written, checked and read"),
    ("ray", "rows of Ray Data as messages"),
    ("profiling", "what holds a training back: measured, judged, and what would help"),
    ("", "accel itself: the public names"),
    ("cli", "the commands"),
    ("__main__", "python -m accel"),
)
"""From the ground up: what stands on one line may use the lines before it, and itself, but not its neighbours."""

FLOORS = {room: floor for floor, (rooms, _) in enumerate(ROOMS) for room in rooms.split(" ")}

BY_NAME = {
    ("accel.processes.launch.child", "accel"),
    ("accel.processes.launch.child", "accel.cli.child_start"),
    ("accel", "accel.cli.command_line"),
}
"""Imports that are meant to go upwards: a process that was started for the work imports accel anew; and
`python -m accel` checks its arguments before accel is imported.
"""

LONGEST = 450  # lines
LONGER: frozenset[str] = frozenset()
PRIVATE = 148  # uses of private names in tests

Tree = Mapping[str, str]


@cache
def tree() -> Tree:
    """The sources of accel, its backends, the benchmarks and the rig, by the names that they are imported by."""
    paths = {
        "accel": list((ROOT / "accel").rglob("*.py")),
        "bench": list((ROOT / "bench").rglob("*.py")),
        "rig": list((ROOT / "rig").rglob("*.py")),
    }
    found = {}
    for package, files in paths.items():
        folder = ROOT / package.split(".")[-1]
        for path in files:
            inner = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *inner)).removesuffix(".__init__")] = path.read_text()
    return found


@cache
def nodes(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def imported(name: str, source: str, modules: Tree) -> Iterator[str]:
    """Every module that a module imports: at its top, in functions, for the type checker, and by a literal name."""
    is_package = any(other.startswith(f"{name}.") for other in modules)
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = name.split(".")[: len(name.split(".")) - node.level + is_package] if node.level else []
            package = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{package}.{alias.name}"
                yield inner if inner in modules else package
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if called in ("import_module", "__import__", "LazyModule"):
                yield str(node.args[0].value)


def arrows(modules: Tree) -> Iterator[tuple[str, str]]:
    for name, source in modules.items():
        for other in imported(name, source, modules):
            if (name, other) not in BY_NAME:
                yield name, other


def room(name: str) -> str:
    """The room that a module stands in: of a folder, or of a folder in it that is a room of its own."""
    first, second = [*name.split(".")[1:], "", ""][:2]
    return inner if (inner := f"{first}.{second}") in FLOORS else first


def is_accel(name: str) -> bool:
    return name.split(".")[0] == "accel"


def arrows_upward(modules: Tree) -> list[str]:
    """Imports in accel, and in backends, of what is not below them."""
    return [
        f"{name} imports {other}"
        for name, other in arrows(modules)
        if is_accel(name)
        and is_accel(other)
        and room(name) != room(other)
        and FLOORS[room(other)] >= FLOORS[room(name)]
    ]


def circles(modules: Tree) -> list[str]:
    uses: dict[str, set[str]] = {name: set() for name in modules}
    for name, other in arrows(modules):
        if other in modules and other != name:
            uses[name].add(other)
    users = {name: {user for user, used in uses.items() if name in used} for name in modules}
    left = set(modules)
    while loose := {name for name in left if not uses[name] & left or not users[name] & left}:
        left -= loose
    return [f"{name} is in a circle" for name in sorted(left)]


def named_backends(modules: Tree) -> list[str]:
    """Imports of a backend from outside of it; what several use is in ``backends.shared``, for backends alone."""
    found = []
    for name, other in arrows(modules):
        if is_accel(name) and other.startswith("accel.backends"):
            own, used = name.split(".")[1:3], other.split(".")[1:3]
            if own[0] != "backends" or (used != own and (used != ["backends", "shared"] or len(own) < 2)):
                found.append(f"{name} imports {other}")
    return found


def imports_of_tests(modules: Tree) -> list[str]:
    """And in accel of whatever else is part of a checkout alone."""
    strange = {"tests", "conftest"}
    return [
        f"{name} imports {other}"
        for name, other in arrows(modules)
        if other.split(".")[0] in (strange | {"bench", "rig", "backends"} if is_accel(name) else strange)
    ]


def changed_paths(modules: Tree) -> list[str]:
    """Where bench or the rig does more than read ``sys.path``: assigns to it, or calls a method that changes it."""
    found = []
    for name, source in modules.items():
        for node in () if is_accel(name) else nodes(source):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                changed = [node.func.value] if node.func.attr not in ("index", "count", "copy") else []
            elif isinstance(node, (ast.Assign, ast.Delete)):
                changed = list(node.targets)
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                changed = [node.target]
            else:
                continue
            targets = [each.value if isinstance(each, ast.Subscript) else each for each in changed]
            if "sys.path" in map(ast.unparse, targets):
                found.append(f"{name}, line {node.lineno}")
    return found


def long_files(modules: Tree) -> list[str]:
    lengths = {name: len(source.splitlines()) for name, source in modules.items() if is_accel(name)}
    return [f"{name} has {length} lines" for name, length in lengths.items() if length > LONGEST and name not in LONGER]


def unknown_rooms(modules: Tree) -> list[str]:
    return [name for name in modules if is_accel(name) and room(name) not in FLOORS]


CHECKS: tuple[Callable[[Tree], list[str]], ...] = (
    unknown_rooms,
    arrows_upward,
    circles,
    named_backends,
    imports_of_tests,
    changed_paths,
    long_files,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_tree(check: Callable[[Tree], list[str]]) -> None:
    assert not check(tree())


def test_every_room_stands() -> None:
    assert {room(name) for name in tree() if is_accel(name)} == FLOORS.keys()


def test_no_test_file_imports_another() -> None:
    """What several of them use stands in a module of its own."""
    for path in (ROOT / "tests").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        others = [other for other in imported(name, path.read_text(), {}) if ".test_" in other]
        assert not others, name


def private_names(source: str) -> list[str]:
    """The uses of accel's private names in a test: imported, read from what it imports, or named beside it to a call,
    as ``monkeypatch.setattr(module, "_name", value)`` does."""
    of_accel, found = set(), list[str]()
    for node in nodes(source):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            package = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                if is_accel(package or alias.name):
                    of_accel.add(alias.asname or (alias.name if package else "accel"))
                    found += [alias.name] if package else []

    def is_inside(node: ast.expr) -> bool:
        while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
            node = node.func if isinstance(node, ast.Call) else node.value
        return isinstance(node, ast.Name) and node.id in of_accel

    for node in nodes(source):
        if isinstance(node, ast.Attribute) and is_inside(node):
            found.append(node.attr)
        elif isinstance(node, ast.Call):
            found += [
                str(name.value)
                for owner, name in pairwise(node.args)
                if isinstance(name, ast.Constant) and is_inside(owner)
            ]
    return [name for name in found if name.startswith("_") and not name.endswith("_")]


def test_tests_ask_through_public_names() -> None:
    """What several tests need of private ones stands in ``tests/support/inside.py``; fewer is better."""
    uses = {path: len(private_names(path.read_text())) for path in (ROOT / "tests").rglob("*.py")}
    assert sum(uses.values()) <= PRIVATE, uses


@pytest.mark.parametrize(
    "source",
    [
        "from accel.codec.jpeg import _scratch",
        "from accel.codec import jpeg as j\nj._scratch.layout",
        "import accel.codec.jpeg\naccel.codec.jpeg._scratch",
        "from accel.codec import jpeg\njpeg.Index()._words[0]",
        "def test(patch):\n    from accel.codec import jpeg\n    patch.setattr(jpeg, '_scratch', None)",
    ],
)
def test_private_names_are_seen(source: str) -> None:
    assert len(private_names(source)) == 1
    assert not private_names(source.replace("accel", "other"))
    assert not private_names(source.replace("_", "x"))


IN_A_FUNCTION = "def f():\n    from accel import {}\n"
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from accel.{} import name\n"
PLANTED: dict[str, tuple[Callable[[Tree], list[str]], dict[str, str]]] = {
    "a room that the table lacks": (unknown_rooms, {"accel.pieces.recipe": ""}),
    "the planner reads what is lazy": (arrows_upward, {"accel.planning.plan": "import accel.lazy.image"}),
    "a recipe knows the switch": (arrows_upward, {"accel.recipes.recipe": FOR_TYPES.format("processes.switch")}),
    "what runs plans knows the switch": (
        arrows_upward,
        {"accel.runtime.read": "from accel.processes.switch import current"},
    ),
    "a message knows the switch": (arrows_upward, {"accel.processes.packing": FOR_TYPES.format("processes.switch")}),
    "a backend knows what is lazy": (arrows_upward, {"accel.backends.cpu.x": "from accel.lazy.image import LazyImage"}),
    "neighbours": (arrows_upward, {"accel.lazy.explanation": "from accel import testing"}),
    "accel itself": (arrows_upward, {"accel.hooks.install": "import accel"}),
    "by name": (arrows_upward, {"accel.hooks.install": "import importlib\nimportlib.import_module('accel.cli')"}),
    **{
        f"the codec reads {room}": (arrows_upward, {"accel.codec.decode": IN_A_FUNCTION.format(room)})
        for room in ("recipes", "planning", "backend", "runtime", "processes")
    },
    "two files": (circles, {"accel.a": "from accel import b", "accel.b": IN_A_FUNCTION.format("a")}),
    "by a type": (circles, {"accel.a.x": FOR_TYPES.format("a.y"), "accel.a.y": "import accel.a.x"}),
    "three files, by relative imports": (
        circles,
        {
            "accel.backends.cpu.a": "from .b import f",
            "accel.backends.cpu.b": "from . import c",
            "accel.backends.cpu.c": "from .a import g",
        },
    ),
    "with its own package": (circles, {"accel.a": "from .b import f", "accel.a.b": "from . import g"}),
    "the core names a backend": (named_backends, {"accel.backend": "def f():\n    import accel.backends.cpu"}),
    "a command names a backend": (named_backends, {"accel.cli.verify": "from accel.backends.cuda import CudaBackend"}),
    "one backend uses another": (named_backends, {"accel.backends.cuda.x": "from accel.backends.cpu.arrays import f"}),
    "relatively": (named_backends, {"accel.backends.cuda.x": "from ..cpu import f", "accel.backends.cpu": ""}),
    "what is shared uses a backend": (named_backends, {"accel.backends.shared.x": "import accel.backends.cpu.arrays"}),
    "at first need": (arrows_upward, {"accel.codec.decode": "_lazy = LazyModule('accel.lazy.image')"}),
    "the benchmarks": (imports_of_tests, {"accel.cli.verify": "from bench import machine"}),
    "a backend by its folder": (imports_of_tests, {"accel.lazy.image": "import backends.cpu"}),
    "a helper of the tests": (imports_of_tests, {"bench.gpu": "def f():\n    import conftest"}),
    "the package of the tests": (imports_of_tests, {"accel.testing": "from tests.support import photos"}),
    "inserted": (changed_paths, {"bench.x": "import sys\nsys.path.insert(0, '.')"}),
    "assigned": (changed_paths, {"bench.x": "import sys\nsys.path[:0] = ['.']"}),
    "added to": (changed_paths, {"bench.x": "import sys\nsys.path += ['.']"}),
    "too long": (long_files, {"accel.ops.tensors": "x = 0\n" * (LONGEST + 1)}),
}


@pytest.mark.parametrize(("check", "modules"), PLANTED.values(), ids=PLANTED)
def test_each_check_sees_what_it_is_for(check: Callable[[Tree], list[str]], modules: Tree) -> None:
    assert check(modules)


SOUND = {
    "accel": "import accel.hooks.install\nfrom accel.processes.switch import image_backend",
    "accel.hooks.install": "from accel.lazy import image",
    "accel.lazy.image": "from accel.processes import switch\nfrom accel.recipes.recipe import Recipe",
    "accel.processes.switch": "from accel.backend import backend_of",
    "accel.backend": "",
    "accel.recipes.recipe": "from accel.recipes.options import Selection",
    "accel.recipes.options": "",
    "accel.backends.cpu": "from .backend import CpuBackend",
    "accel.backends.cpu.backend": "from ..shared.bits import bits\nfrom accel.processes import switch",
    "accel.backends.shared.bits": "import numpy as np",
    "bench.x": "import sys\nprint(sys.path, sys.path.index('.'))\nfrom accel.backends.cuda import CudaBackend",
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_sound_is_let_be(check: Callable[[Tree], list[str]]) -> None:
    assert not check(SOUND)
