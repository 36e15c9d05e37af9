"""Running the kernels on the host: the same sources, compiled by g++, block by block. For tests and trials.

The device's memory is the host's, and a launch runs at once in the calling thread.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from accel.backends.cuda.compile import UNITS, key, label_of, unit_of
from accel.backends.cuda.declarations import SOURCES
from accel.backends.cuda.device import Device
from accel.codec import store
from accel.errors import BackendUnavailable
from accel.system import fork
from accel.system.native.object_cache import cached_path

COMPILER = "g++"
_MOST_BLOCKS = (1 << 31) - 1
_UNKNOWN = 4 << 30  # bytes of memory to assume if the system does not tell
_ITEM_ALIGNED, _OWNER_ALIGNED = 8, 4  # checked, as a misaligned load is a fault on a GPU
FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-fvisibility=default")


def unavailable() -> str | None:
    """The reason why the kernels cannot run on the host here, or None."""
    if shutil.which(COMPILER) is None:
        return f"running the kernels on the host needs {COMPILER}: install it (Debian: apt install g++)"
    return None


class HostDevice(Device):
    """The host in place of a GPU."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))

    def prepare(self) -> None:
        for names in UNITS.values():
            for name in names:
                function(name)

    def launch(self, kernel: str, blocks: int, items: int, owners: int) -> None:
        """Run a launch at once.

        Raises:
            RuntimeError: a GPU would refuse the launch, or fault on it.
        """
        if not all(type(value) is int for value in (blocks, items, owners)):  # cuda.core packs by the type
            raise RuntimeError(f"{kernel}: a launch takes plain ints, got {(blocks, items, owners)!r}")
        if not 0 < blocks <= _MOST_BLOCKS:
            raise RuntimeError(f"{kernel}: a launch has 1 to {_MOST_BLOCKS} blocks, got {blocks}")
        for name, address, aligned in (("items", items, _ITEM_ALIGNED), ("owners", owners, _OWNER_ALIGNED)):
            if address == 0 or address % aligned:
                raise RuntimeError(f"{kernel}: {name} at {address:#x}, which is not a multiple of {aligned}")
        function(kernel)(blocks, items, owners)

    def free_memory(self) -> int:
        left = store.left()
        return _UNKNOWN if left is None else left


def function(kernel: str, *, flags: tuple[str, ...] = FLAGS) -> Any:
    """A kernel as a C function of (blocks, address of items, address of owners).

    ``flags``: the compiler's; with others, tests run the threads of a block in another order (``shim.h``).

    Raises:
        BackendUnavailable: it cannot be compiled or loaded.
    """
    found = getattr(_library(unit_of(kernel), flags), kernel)
    found.argtypes, found.restype = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p), None
    return found


_lock = fork.Lock()


def _library(name: str, flags: tuple[str, ...] = FLAGS) -> ctypes.CDLL:
    with _lock:
        return _loaded(name, flags)


@cache
def _loaded(name: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    try:
        path = cached_path(
            f"{label_of(name)}-host-{key(*flags, _version())}.so", lambda: _compile(SOURCES / f"{name}.cu", flags)
        )
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BackendUnavailable(f"the kernels cannot be loaded on the host: {error}") from error


@cache
def _version() -> str:
    if (reason := unavailable()) is not None:
        raise BackendUnavailable(reason)
    done = subprocess.run([COMPILER, "-dumpfullversion", "-dumpmachine"], capture_output=True, text=True, check=False)
    return done.stdout


def _compile(source: Path, flags: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.so"
        command = [COMPILER, *flags, "-I", str(SOURCES), "-x", "c++", str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BackendUnavailable(f"{COMPILER} cannot compile {source.name}:\n{done.stderr}")
        return library.read_bytes()
