"""What runs when an object goes may run while the interpreter ends, when the names of modules are gone already: it
binds what it uses, or returns first if ``sys.is_finalizing()``."""

import ast
import builtins
import dis
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import pytest

import accel
import accel.backends

ROOTS = (accel, accel.backends)


def modules() -> list[Any]:
    """All modules of accel that can be imported; a function of a package keeps its name, if a module has the same."""
    found = []
    for root in ROOTS:
        for each in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            if not each.name.endswith(("__main__", "sitecustomize")) and ".site." not in each.name:
                parent, _, name = each.name.rpartition(".")
                before = vars(importlib.import_module(parent)).get(name)
                try:
                    found.append(importlib.import_module(each.name))
                except ImportError:  # a library that is not installed
                    continue
                if before is not None:
                    setattr(sys.modules[parent], name, before)
    return found


def code_of(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from code_of(each)


def unbound(function: Callable[..., Any]) -> set[str]:
    """The names of its module that a function, or one that it calls by a default, may need as the interpreter ends."""
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType):
        return set()
    needed: set[str] = set()
    for each in function.__defaults__ or ():
        needed |= unbound(each)
    guard = None
    if sys.is_finalizing in (function.__defaults__ or ()):
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        guard = names[len(names) - len(function.__defaults__) + function.__defaults__.index(sys.is_finalizing)]  # type: ignore[arg-type,union-attr]
    for code in code_of(function.__code__):
        for step in dis.get_instructions(code):
            if guard is not None and code is function.__code__ and guard in str(step.argval):
                break  # it asks before it needs any of the names behind
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and not hasattr(builtins, str(step.argval)):
                needed.add(str(step.argval))
        if guard is not None:
            break
    return needed


def callbacks(module: Any) -> Iterator[tuple[int, Any, set[str]]]:
    """The callbacks of a module's weak references: the line, the function, and the names that a lambda needs."""
    source = Path(module.__file__).read_text()
    references = {
        name for name, each in vars(module).items() if isinstance(each, type) and issubclass(each, WeakReference)
    }
    tree = ast.parse(source)
    methods = {
        call: owner
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef)
        for call in ast.walk(owner)
        if isinstance(call, ast.Call)
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or len(call.args) < 2:
            continue
        named = ast.unparse(call.func)
        if named not in ("weakref.ref", "ref") and named not in references:
            continue
        callback = call.args[1]
        if isinstance(callback, ast.Call) and ast.unparse(callback.func) == "partial":
            callback = callback.args[0]
        if isinstance(callback, ast.Lambda):
            used = {each.id for each in ast.walk(callback.body) if isinstance(each, ast.Name)}
            yield call.lineno, None, used & vars(module).keys()
        elif isinstance(callback, ast.Attribute) and ast.unparse(callback.value) == "self":
            yield call.lineno, getattr(getattr(module, methods[call].name), callback.attr), set()
        else:
            yield call.lineno, getattr(module, ast.unparse(callback)), set()


WeakReference: Any = type(sys.modules["weakref"].ref(builtins.type("", (), {})))


def test_finalizers_bind_what_they_need() -> None:
    finalizers = 0
    for module in modules():
        for cls in vars(module).values():
            if isinstance(cls, type) and cls.__module__ == module.__name__ and "__del__" in vars(cls):
                finalizers += 1
                assert not unbound(vars(cls)["__del__"]), f"{cls.__module__}.{cls.__qualname__}.__del__"
    assert finalizers >= 8


def test_callbacks_of_weak_references_bind_what_they_need() -> None:
    found = 0
    for module in modules():
        for line, function, names in callbacks(module):
            found += 1
            assert not names, f"{module.__name__}:{line}"
            assert function is None or not unbound(function), f"{module.__name__}:{line}"
    assert found >= 1  # ``weakref.finalize`` calls nothing once the interpreter ends


def _reaches(self: Any) -> None:
    dis.dis(self)


def _asks_late(self: Any, ending: Any = sys.is_finalizing) -> None:
    if dis and ending():
        return


def _asks(self: Any, ending: Any = sys.is_finalizing) -> None:
    if ending():
        return
    dis.dis(self)


def _binds(self: Any, close: Any = _asks) -> None:
    close(len(self))


def _binds_badly(self: Any, close: Any = _reaches) -> None:
    close(self)


@pytest.mark.parametrize(
    ("function", "expected"),
    [(_reaches, {"dis"}), (_asks_late, {"dis"}), (_asks, set()), (_binds, set()), (_binds_badly, {"dis"})],
)
def test_what_is_found(function: Any, expected: set[str]) -> None:
    assert unbound(function) == expected
