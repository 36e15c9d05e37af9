"""What Pillow's source says of its methods and functions: which fields of an image they set or change.

Found are assignments to a field, or to what it holds, calls whose result is not used, of a field or with the pixels,
and calls of such methods.
"""

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import PIL

_SAME = {"_im": "im", "_readonly": "readonly"}
_ANY_USE = {"load()"}  # which nearly all methods call


def fields_of_methods(source: str | type) -> dict[str, set[str]]:
    """The fields of ``self`` that each method of a class changes, by the method's name."""
    [tree] = ast.parse(source if isinstance(source, str) else inspect.getsource(source)).body
    found = {name: fields["self"] for name, fields in _functions(tree)}
    for _ in found:  # each time, calls are followed one further
        for fields in found.values():
            for call in [field for field in fields - _ANY_USE if field.endswith("()")]:
                fields |= found.get(call[:-2], set())
    plain = {name: {field for field in fields if not field.endswith("()")} for name, fields in found.items()}
    return {name: fields for name, fields in plain.items() if fields}


def fields_of_functions(names: set[str]) -> dict[str, set[str]]:
    """Those of ``names`` that functions, and methods of other classes, change of images that they are given."""
    found = {}
    for path in sorted(Path(PIL.__path__[0]).glob("*.py")):
        for name, fields in _functions(ast.parse(path.read_text("utf-8"))):
            changed = set().union(*(fields[argument] for argument in fields if argument != "self"))
            if "_ensure_mutable()" in changed or "_copy()" in changed:
                changed.add("im")
            if changed & names:
                found[f"{path.stem}.{name}"] = changed & names
    return found


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, dict[str, set[str]]]]:
    """Each function's name, with its classes', and for each argument the fields that it changes, and its calls."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            arguments = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            fields: dict[str, set[str]] = defaultdict(set)
            for argument, field in _changed(node):
                if argument in arguments:
                    fields[argument].add(_SAME.get(field, field))
            yield prefix + node.name, fields


def _changed(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """The name and the first attribute of everything that a function changes or calls."""
    for node in ast.walk(function):
        places: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            places = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            places = [node.target]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name, *attributes = _path(node.value.func)
            if attributes:
                yield name, attributes[0] + ("()" if len(attributes) == 1 else "")
            places = [each for each in node.value.args if _path(each)[1:] in (["im"], ["_im"])]
        for place in places:
            for each in place.elts if isinstance(place, ast.Tuple) else [place]:
                name, *attributes = _path(each)
                if attributes:
                    yield name, attributes[0]


def _path(node: ast.expr) -> list[str]:
    """The names of ``a.b[0].c``: a, b, c; an empty one for other expressions."""
    names: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else [""]
