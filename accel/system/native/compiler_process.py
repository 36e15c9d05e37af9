"""A process that compiles: it imports numba and the sources, and nothing else of accel.

    python compiler_process.py < order > each unit's size (8 bytes) and object code

The packages around the sources are not run, so that neither torch nor Pillow is imported.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path


class Bare:
    """A finder of accel's packages as bare folders, whose ``__init__.py`` is not run."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        first, *rest = name.split(".")
        folder = self._root.joinpath(*rest)
        if first != "accel" or not folder.is_dir():
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec


_NOT_WANTED = ("colorama", "scipy", "yaml")  # which numba uses if they are installed, for messages, BLAS and settings


def main() -> None:
    gc.disable()
    result = os.dup(1)
    os.dup2(2, 1)  # for everything that is printed meanwhile
    order = json.load(sys.stdin)
    sys.path[:] = order["path"]
    sys.modules |= dict.fromkeys(_NOT_WANTED)  # type: ignore[arg-type]  # None: importing it fails
    sys.meta_path.insert(0, Bare(Path(__file__).resolve().parents[2]))
    import_module("accel.system.native.lean").strip(counts=order["counts"])
    compiled = import_module("accel.system.native.compiling").compiled
    with open(result, "wb") as file:
        for functions in order["units"]:
            code = compiled(functions, order["cpu"], order["features"])
            file.write(len(code).to_bytes(8, "little") + code)
            file.flush()


if __name__ == "__main__":
    main()
