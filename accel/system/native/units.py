"""Compiled functions: loaded from ``object_cache`` without numba, or compiled by processes that import it.

A ``Unit`` is a set of functions that are compiled together; a ``Function`` of it is called from Python, and runs
without the GIL, unless it is ``locked``.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from multiprocessing.spawn import get_executable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from accel.system import cores, log
from accel.system.imports import LazyModule, importing
from accel.system.native import object_cache
from accel.system.native.signatures import FAILED, parameters
from accel.system.version import __version__

_ROOT = Path(__file__).resolve().parents[2]
_FILES = "compiling", "intrinsics", "lean", "processor", "signatures"
_COMPILER = tuple(f"system/native/{name}.py" for name in _FILES)

_llvmlite = LazyModule("llvmlite")
_llvm = LazyModule("llvmlite.binding")
_processor = LazyModule("accel.system.native.processor")
_compiling = LazyModule("accel.system.native.compiling")  # it imports numba


class Function:
    """A function of a unit. Its first call loads the unit, and compiles it if necessary.

    Attributes:
        locked: whether it runs with the GIL, so that nothing changes meanwhile.
    """

    def __init__(self, unit: Unit, module: str, name: str, signature: str, locked: bool) -> None:
        self.order = (module, name, signature)
        self.locked = locked
        self._unit = unit
        self._entry: Any = None
        self._address = 0

    @property
    def address(self) -> int:
        """The address of its code, for other compiled code (``calls``); loads the unit if necessary."""
        if self._entry is None:
            ready([self._unit])
        return self._address

    def __call__(self, *arguments: Any) -> int:
        """Call the function.

        Raises:
            TypeError: an argument is not an array of the signature's kind.
            RuntimeError: the compiled code failed.
        """
        if self._entry is None:
            ready([self._unit])
        result: int = self._entry(_NDARRAY, *arguments)
        if result <= FAILED:
            self._refuse(result, arguments)
        return result

    def bind(self, engine: Any) -> None:
        """Take the function's address from LLVM's engine."""
        _, name, signature = self.order
        numbers = {"f": ctypes.c_double}
        kinds: list[Any] = [
            ctypes.py_object if parameter.dimensions else numbers.get(parameter.code[0], ctypes.c_int64)
            for parameter in parameters(signature)
        ]
        make = ctypes.PYFUNCTYPE if self.locked else ctypes.CFUNCTYPE
        kind = make(ctypes.c_int64, ctypes.c_int64, *kinds)
        self._address = engine.get_function_address(name)
        self._entry = kind(self._address)

    def _refuse(self, result: int, arguments: Sequence[Any]) -> NoReturn:
        if result == FAILED:
            raise RuntimeError(f"{self.order[1]} failed")
        found = (f"{a.dtype}{list(a.shape)}" if isinstance(a, np.ndarray) else repr(a) for a in arguments)
        raise TypeError(f"{self.order[1]} takes ({self.order[2]}), C-contiguous, not ({' '.join(found)})")


class Unit:
    """Functions that are compiled together.

    Args:
        name: the name of its file in the cache, before the digest.
        sources: patterns of all files below the package that its code is in.
        seconds: roughly how long it takes to compile.
        makes_arrays: whether its code makes arrays.
    """

    def __init__(self, name: str, *sources: str, seconds: float, makes_arrays: bool = False) -> None:
        self.name, self.sources, self.seconds, self.makes_arrays = name, sources, seconds, makes_arrays
        self.functions: list[Function] = []
        self.engine: Any = None  # LLVM's engine, once the unit is loaded
        _units.append(self)

    def function(self, module: str, name: str, signature: str, *, locked: bool = False) -> Function:
        """Add a function of a module below the package, which imports only ``sources`` of the package."""
        made = Function(self, f"accel.{module}", name, signature, locked)
        self.functions.append(made)
        return made

    @property
    def file(self) -> str:
        """Its file name in the cache, which depends on the sources, the compiler and the processor."""
        paths = [path for pattern in (*self.sources, *_COMPILER) for path in _ROOT.glob(pattern)]
        signatures = json.dumps([function.order for function in self.functions])
        return f"{self.name}-{object_cache.digest(paths, _ROOT, signatures, *_circumstances())}.o"

    def load(self, code: bytes) -> None:
        """Load object code, so that the functions can be called."""
        self.engine = _processor.engine(code)
        for function in self.functions:
            function.bind(self.engine)


_units: list[Unit] = []


def units() -> list[Unit]:
    """All units of the modules that were imported."""
    return list(_units)


def ready(required: Iterable[Unit], *, processes: int | None = None, done: Done = lambda unit: None) -> list[Unit]:
    """Load units; those that the cache lacks are first compiled, in several processes, and put there.

    Args:
        processes: the most processes at a time; None: one for each core.
        done: called, in any thread, with each unit that was compiled.

    Returns:
        The units that were compiled.
    """
    with importing:
        missing: dict[Unit, bytes | None] = {}
        for unit in (unit for unit in required if unit.engine is None):
            if (code := object_cache.read(unit.file)) is not None:
                unit.load(code)
            else:
                missing[unit] = None
        left = set(missing)

        def finished(unit: Unit) -> None:
            left.discard(unit)
            _show(left)
            done(unit)

        if missing:
            _show(left)
            _in_processes(missing, processes or cores.cores(), finished)
        for unit, made in missing.items():
            unit.load(_compiled_here(unit, finished) if made is None else made)
    return list(missing)


watchers: list[Callable[[Collection[Unit]], object]] = []
"""Called, in any thread, with the units that are still to compile, whenever these change."""


def _show(left: Collection[Unit]) -> None:
    for watch in watchers:
        watch(tuple(left))


Done = Callable[[Unit], object]


def _in_processes(missing: dict[Unit, bytes | None], processes: int, done: Done) -> None:
    """Have processes compile units, and put the code into ``missing``; units that they could not compile stay None."""
    if getattr(sys, "frozen", False) or not (executable := get_executable()):
        return
    shares: list[list[Unit]] = [[] for _ in range(min(processes, len(missing)))]
    for unit in sorted(missing, key=lambda unit: -unit.seconds):
        min(shares, key=_seconds).append(unit)
    if log.first("compiling"):
        names, seconds = ", ".join(unit.name for unit in missing), max(map(_seconds, shares)) + 1
        log.at_once(
            log.WARNING,
            f"accel compiles its kernels for this processor, as {object_cache.where()} has none to load: {names}, "
            f"about {seconds:.0f} s; others when a step first needs them, without another message (python -m accel "
            "warm compiles all of them in advance)",
        )

    def work(share: list[Unit]) -> None:
        with suppress(OSError):
            for unit, code in zip(share, _process(os.fsdecode(executable), share), strict=False):
                missing[unit] = code
                object_cache.keep(unit.file, code)
                done(unit)

    with ThreadPoolExecutor(len(shares), initializer=log.is_ours) as pool:
        list(pool.map(work, shares))


def _compiled_here(unit: Unit, done: Done) -> bytes:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        raise RuntimeError("no process could be started to compile in, and NUMBA_DISABLE_JIT forbids it in this one")
    if log.first("compiling here"):
        log.at_once(log.WARNING, "no other process could compile accel's kernels: this one does, which takes longer")
    code: bytes = _compiling.compiled([function.order for function in unit.functions], *_processor.found())
    object_cache.keep(unit.file, code)
    done(unit)
    return code


def _seconds(share: list[Unit]) -> float:
    return sum(unit.seconds for unit in share)


def _process(executable: str, share: list[Unit]) -> Iterator[bytes]:
    """Yield the object code of units in order, by a process; fewer if that fails."""
    cpu, features = _processor.found()
    order = {
        "path": [os.path.abspath(folder) for folder in sys.path],
        "counts": any(unit.makes_arrays for unit in share),
        "units": [[function.order for function in unit.functions] for unit in share],
        "cpu": cpu,
        "features": features,
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    environment["NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"] = "1"  # numba makes many error messages internally
    with subprocess.Popen(
        [executable, "-W", "ignore", str(Path(__file__).with_name("compiler_process.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,  # numba reads settings from the working directory
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with process.stdin as stdin:
                stdin.write(json.dumps(order).encode())
            while len(size := process.stdout.read(8)) == 8:
                code = process.stdout.read(int.from_bytes(size, "little"))
                if len(code) == int.from_bytes(size, "little"):
                    yield code
        finally:
            process.kill()


@lru_cache(maxsize=1)
def _circumstances() -> tuple[str, ...]:
    """The versions and the processor that code depends on besides its sources."""
    found = find_spec("numba")
    version = Path(found.origin).parent / "_version.py" if found is not None and found.origin else None
    numba = version.read_text() if version is not None and version.exists() else metadata.version("numba")
    python = f"{sys.implementation.cache_tag} {object.__basicsize__}"
    return __version__, numba, _llvmlite.__version__, _llvm.get_process_triple(), python, *_processor.found()


_NDARRAY = id(np.ndarray)
