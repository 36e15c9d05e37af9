"""Compiled code takes addresses of parameters only: of its own arrays numba would let go while they are in use."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import accel

ROOT = Path(accel.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def functions(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef, list[ast.AST]]]:
    """Every function, with the nodes that are its own and not those of one within it."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            own: list[ast.AST] = []
            ahead: list[ast.AST] = list(function.body)
            while ahead:
                node = ahead.pop()
                if not isinstance(node, ast.FunctionDef):
                    own.append(node)
                    ahead += ast.iter_child_nodes(node)
            yield function, own


def addressed(node: ast.AST) -> ast.expr | None:
    """The array whose address an expression is."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "pointer_to":
        return node.args[0]
    return node.value if isinstance(node, ast.Attribute) and node.attr == "ctypes" else None


def parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def holds(node: ast.AST, pointers: set[str]) -> bool:
    """Whether an expression has an address in it, or a name of one, and not only what is there."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return holds(node.slice, pointers)
    named = isinstance(node, ast.Name) and node.id in pointers
    return named or addressed(node) is not None or any(holds(part, pointers) for part in ast.iter_child_nodes(node))


def mistakes(source: str) -> list[str]:
    found = []
    for function, own in functions(ast.parse(source)):
        given = {argument.arg for argument in function.args.args}
        stored = [node.id for node in own if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        given -= set(stored)
        assigned = [node for node in own if isinstance(node, ast.Assign)]
        # the caller holds a tuple that is a parameter, and what is in it
        taken_apart = [
            node.targets[0] for node in assigned if isinstance(node.value, ast.Name) and node.value.id in given
        ]
        names = [part.id for target in taken_apart for part in parts(target) if isinstance(part, ast.Name)]
        given |= {name for name in names if stored.count(name) == 1}
        pointers = {
            target.id
            for node in assigned
            for target, value in zip(parts(node.targets[0]), parts(node.value), strict=False)
            if isinstance(target, ast.Name) and addressed(value)
        }
        for node in own:
            array = addressed(node)
            if array is not None and not (isinstance(array, ast.Name) and array.id in given):
                found.append(f"{function.name}: {ast.unparse(array)} is not a parameter")
            if isinstance(node, ast.Return) and holds(node, pointers):
                found.append(f"{function.name} returns an address")
    return found


def test_addresses_are_taken_of_parameters() -> None:
    for path in FILES:
        assert not mistakes(path.read_text()), path


def test_there_are_some() -> None:
    taken = [node for path in FILES for node in ast.walk(ast.parse(path.read_text())) if addressed(node)]
    assert len(taken) > 20


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    quant = np.empty((3, 64), np.int16)\n    at = pointer_to(quant)",
        "def f(n):\n    line = np.empty(n, np.uint8)\n    for x in range(n):\n        g(line.ctypes.data + x)",
        "def f(a):\n    a = a.copy()\n    g(pointer_to(a))",
        "def f(a):\n    b, n = a\n    b = b.copy()\n    g(pointer_to(b))",
        "def f(a):\n    b, n = h(a)\n    g(pointer_to(b))",
        "def f(a):\n    g(a.reshape(-1).ctypes.data)",
        "def f(a):\n    return advanced(pointer_to(a), 3)",
        "def f(a):\n    p, n = pointer_to(a), 3\n    return p",
        "def f(a):\n    def g():\n        return pointer_to(a)[0]\n    return g()",
    ],
    ids=[
        "local",
        "in a loop",
        "bound again",
        "unpacked, bound again",
        "unpacked of a result",
        "temporary",
        "returned",
        "returned by name",
        "of a function around it",
    ],
)
def test_mistakes_are_found(source: str) -> None:
    assert mistakes(source)
