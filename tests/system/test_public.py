"""What is public: a written list of names, signatures, options and commands, and a docstring for each.

A change of ``public.txt`` is a change of what others depend on: it has a line in CHANGELOG.md under Changed or Removed,
or it only adds. ``python -m tests.system.test_public`` writes the list anew.
"""

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import accel
from accel import backend, functional, packs, ray, testing, wire
from accel.cli.command_line import parser

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = Path(__file__).with_name("public.txt")
RETURNED = ("accel.profiling.report.Report", "accel.sinking.sink.Sink")
"""Classes of what public functions return, which are not exported: where they stand may change."""
BACKENDS = ("cpu", "cuda", "dali", "reference")


class _Shown:
    """An annotation as it is written in the source."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = getattr(annotation, "__forward_arg__", annotation)

    def __repr__(self) -> str:
        return self._annotation if isinstance(self._annotation, str) else inspect.formatannotation(self._annotation)


def signature(function: Any) -> str:
    """The signature, with its annotations as they are written."""
    found = inspect.signature(function)
    parameters = [
        each if each.annotation is each.empty else each.replace(annotation=_Shown(each.annotation))
        for each in found.parameters.values()
    ]
    returned = found.return_annotation
    return str(
        found.replace(
            parameters=parameters, return_annotation=returned if returned is found.empty else _Shown(returned)
        )
    )


def documented() -> dict[str, Any]:
    """What docs/api.md shows, by its dotted name: objects, and the members of those for which it names some."""
    shown: dict[str, Any] = {}
    text = (ROOT / "docs" / "api.md").read_text()
    for name, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", text + "\n", re.MULTILINE):
        found = shown[name] = resolve_name(name)
        listed = re.search(r"members: \[(.*)\]", options)
        members = listed[1].split(", ") if listed else []
        if inspect.isclass(found) and "members: false" not in options and not listed:
            members = own_members(found)
        for member in members:
            inner = shown[f"{name}.{member}"] = getattr(found, member)
            if inspect.isclass(inner):
                shown |= {f"{name}.{member}.{each}": vars(inner)[each] for each in own_members(inner)}
    return shown


def own_members(kind: type) -> list[str]:
    """The public members that a class has itself, without the fields of its constructor."""
    fields = (*getattr(kind, "_fields", ()), *getattr(kind, "__dataclass_fields__", ()))
    return [
        name
        for name, found in vars(kind).items()
        if name[0] != "_" and name not in fields and not isinstance(found, type)
    ]


MADE = ("accel.Future", "accel.LazyImage", "accel.LazyTensor", *RETURNED)
"""Classes that nobody but accel makes an object of."""


def lines() -> Iterator[str]:
    """All that is public, a line each."""
    for name, found in documented().items():
        shown = next((name.replace(of, of.rpartition(".")[2]) for of in RETURNED if name.startswith(of)), name)
        if inspect.isclass(found) and issubclass(found, Exception):
            yield f"class {shown}({', '.join(base.__name__ for base in found.__bases__)})"
        elif name in MADE or isinstance(found, property):
            yield shown
        elif callable(found) or isinstance(found, classmethod):
            yield f"{shown}{signature(getattr(found, '__func__', found))}"
        elif not inspect.ismodule(found):
            yield shown
    yield from (
        f"accel.functional.{name}" for name in functional.__all__ if name != "decode"
    )  # torchvision's signatures
    yield "accel.__version__"
    for name in BACKENDS:
        options = signature(backend.find(name).Options).removeprefix("(").removesuffix(") -> None")
        yield f"accel.set_image_backend({name!r}, {options})"
    for command, of in commands(parser()).items():
        actions = [action for action in of._actions if action.dest != "help"]
        words = [word for action in actions for word in action.option_strings or [str(action.metavar or action.dest)]]
        yield f"python -m accel {command} {' '.join(words)}"


def commands(made: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(dict(action.choices) for action in made._actions if isinstance(action, argparse._SubParsersAction))


def test_what_is_public_is_what_is_written() -> None:
    found, written = sorted(lines()), WRITTEN.read_text().splitlines()
    assert [line for line in found if line not in written] == [], "new: python -m tests.system.test_public"
    assert [line for line in written if line not in found] == [], "gone or changed, which others depend on"
    assert found == written


def test_everything_exported_is_documented() -> None:
    shown = documented()
    assert {f"accel.{name}" for name in accel.__all__} - {"accel.__version__"} <= shown.keys()
    for module in (backend, packs, ray, testing, wire):
        assert {f"{module.__name__}.{name}" for name in module.__all__} <= shown.keys()
    for module in (accel, backend, functional, packs, ray, testing, wire):
        assert all(hasattr(module, name) for name in module.__all__)
        assert len({*module.__all__}) == len(module.__all__)


# -- docstrings -----------------------------------------------------------------------------------------------


@cache
def raised(source: str) -> dict[str, set[str]]:
    """For each function of a module, by qualified name, the exceptions that it raises by name, and the functions of
    the module that it calls."""
    found: dict[str, set[str]] = {}

    def visit(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                visit(child, f"{inside}{child.name}.")
                continue
            if (
                isinstance(child, ast.Raise)
                and isinstance(child.exc, ast.Call)
                and isinstance(child.exc.func, ast.Name)
            ):
                found.setdefault(inside, set()).add(child.exc.func.id)
            if isinstance(child, ast.Call) and isinstance(child.func, ast.Name):
                found.setdefault(inside, set()).add(f"{child.func.id}.")
            visit(child, inside)

    visit(ast.parse(textwrap.dedent(source)), "")
    return found


def raises(source: str, function: str) -> set[str]:
    """The exceptions that a function raises, itself or by a function of its module."""
    of, seen, todo = raised(source), set[str](), [f"{function}."]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [each for each in of.get(name, ()) if each.endswith(".")]
    return {each for name in seen for each in of.get(name, ()) if not each.endswith(".")} - {"NotImplementedError"}


def unsaid(name: str, found: Any) -> list[str]:
    """What the docstring of a public object leaves out."""
    if inspect.ismodule(found) or (not callable(found) and not isinstance(found, (property, classmethod))):
        return []
    text = inspect.getdoc(found) or ""
    if inspect.isclass(found):
        text += inspect.getdoc(found.__init__) or ""
    if not text:
        return [f"{name} has no docstring"]
    found = getattr(found, "fget", None) or getattr(found, "func", None) or getattr(found, "__func__", found)
    function = getattr(found, "__wrapped__", found)
    source = Path(inspect.getfile(function)).read_text()
    inner = [function.__qualname__]
    if inspect.isclass(found):
        inner = [f"{found.__qualname__}.{each}" for each in ("__init__", "__post_init__") if name not in MADE]
    exceptions = set().union(*(raises(source, each) for each in inner))
    lacking = [f"{name} raises {each}, which it does not say" for each in sorted(exceptions) if each not in text]
    given = inspect.signature(found).parameters if inspect.isfunction(found) else ()
    lacking += [
        f"{name} does not say what {each} is" for each in given if each not in ("self", "cls") and each not in text
    ]
    return lacking


def test_every_docstring_says_what_is_raised() -> None:
    assert [text for name, found in documented().items() for text in unsaid(name, found)] == []


def test_what_is_not_said_would_be_seen() -> None:
    source = """
    def outer(): return _inner()
    def _inner(): raise ValueError("no")
    class Kind:
        def method(self):
            if self: raise TypeError("no")
    """
    assert raises(source, "outer") == {"ValueError"}
    assert raises(source, "Kind.method") == {"TypeError"}

    def without(image: int) -> None:
        raise KeyError(image)

    def half(image: int, size: "int | None" = None) -> None:
        """Raise TypeError for an image."""
        raise KeyError(image)

    assert unsaid("f", without) == ["f has no docstring"]
    assert unsaid("f", half) == ["f does not say what size is"]  # what inner functions raise is not looked for
    assert signature(half) == "(image: int, size: int | None = None) -> None"


if __name__ == "__main__":
    WRITTEN.write_text("".join(f"{line}\n" for line in sorted(lines())))
