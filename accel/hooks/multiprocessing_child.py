"""Run, as text, in a process that another one started: it imports nothing of accel's before there is a use for it.

The switch that the process was given (pickled, a function without arguments) is thrown once torchvision or accel has
been imported.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from importlib import import_module
from typing import Any


class SwitchOnImport:
    """A finder of modules that finds none by itself, but sees what is imported."""

    def __init__(self, switch: bytes) -> None:
        self.switch = switch
        self.searching = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in ("accel", "torchvision") or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.imported(name)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def imported(self, name: str) -> None:
        if name == "torchvision":
            import_module("accel")  # which may be what imported torchvision
        elif self in sys.meta_path:
            sys.meta_path.remove(self)
            pickle.loads(self.switch)()

    def install(self) -> None:
        sys.meta_path.insert(0, self)
        for name in ("accel", "torchvision"):  # in a process that was forked from one that had them already
            if name in sys.modules and self in sys.meta_path:
                self.imported(name)
