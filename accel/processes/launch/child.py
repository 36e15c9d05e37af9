"""Code that is run, as text, in a process that starts under the switch; it imports accel only when that is of use.

The switch is thrown once torchvision or accel has been imported. This code is run by the environment
(``site/sitecustomize.py``), and by the preparation of processes by multiprocessing and Ray, which comes later and knows
more.
"""

import os
import sys

TYPE_CHECKING = False  # not from typing: nothing is imported that the script itself might not import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class SwitchOnImport:
    """A module finder that finds nothing itself, but sees imports; it removes itself when the switch is thrown.

    Args:
        switch: called, without arguments, when accel has been imported; None: the environment names the backend.
    """

    def __init__(self, switch: "Callable[[], object] | None" = None) -> None:
        self.switch = switch
        self.settings: dict[str, Any] = {}

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in ("accel", "torchvision"):
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        watches = self.switch is not None or self._has_work()
        if not watches:
            self.remove()  # while Python iterates over the finders: it would skip the next one, which is asked here
        for finder in others:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if watches and spec.loader is not None:
                    spec.loader = Watched(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None

    def _has_work(self) -> bool:
        """Read the environment as it is now; return whether there is anything to do."""
        import json

        try:
            settings = json.loads(os.environ.get("ACCEL_RUN") or "null")
            self.settings = {} if settings is None else dict(settings)
            return settings is not None and (settings["backend"] != "torchvision" or bool(settings["profile"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            return True  # accel refuses it

    def imported(self, name: str) -> None:
        if name == "torchvision":
            try:
                self._import_accel()  # which may be the one that imported torchvision
            except ModuleNotFoundError as error:
                if error.name != "accel":
                    raise
                self.remove()
                print(f"accel run: no accel in {sys.executable}, so its torchvision is left alone", file=sys.stderr)
        elif self in sys.meta_path:
            self.remove()
            if "ACCEL_RUN" in os.environ:
                from accel.cli.child_start import enter

                enter(self.switch)
            elif self.switch is not None:
                self.switch()

    def _import_accel(self) -> None:
        try:
            import accel
        except ModuleNotFoundError as error:
            if error.name != "accel" or self.settings.get("prefix") != sys.prefix:
                raise
            sys.path.append(self.settings["home"])  # a checkout that is not installed
            import accel  # noqa: F401

    def install(self) -> None:
        for other in sys.meta_path[:]:
            if type(other).__name__ == type(self).__name__:  # this one comes later and knows more
                sys.meta_path.remove(other)
        sys.meta_path.insert(0, self)
        for name in ("accel", "torchvision"):  # imported already, in a process that was forked
            if name in sys.modules and self in sys.meta_path:
                self.imported(name)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class Watched:
    """A module's loader that reports when the module has been imported, and then restores the original loader."""

    def __init__(self, loader: "Any", finder: "Any") -> None:
        self.loader = loader
        self.finder = finder

    def __getattr__(self, name: str) -> "Any":
        return getattr(self.loader, name)

    def exec_module(self, module: "Any") -> None:
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.finder.imported(module.__name__)
