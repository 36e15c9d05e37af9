"""Finding memory errors at the instruction that makes them: an allocator with guard pages (guard.cpp; Linux, glibc).

A program that uses it runs in its own process, as the allocator must be loaded from the start:

    subprocess.run([sys.executable, "-X", "faulthandler", "program.py"], env=guard.environment())

and in the program, once everything is imported and compiled:

    with guard.armed():            # blocks end at a guard page; armed("before"): they begin at one
        jpeg.decode(guard.copy(data))

An access past the end of a block, or after it was freed, ends the process with SIGSEGV; stderr names the block. Up to
15 bytes behind a block of malloc are needed for its alignment; writes there are found when it is freed (SIGABRT), reads
are not. The data of NumPy's arrays ends exactly at the page. That of objects in Python's pools, or with a header
(``bytes``), does not: pass a `copy`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from accel.system.native.object_cache import cached_path, digest

_SOURCE = Path(__file__).with_name("guard.cpp")
_KINDS = {"behind": 1, "before": 2}
_DEFAULT_HANDLER = 306  # PyDataMem_DefaultHandler's place in NumPy's table of its C API
_NAME_AND_VERSION = 128  # bytes of a PyDataMem_Handler in front of its functions


class Counts(NamedTuple):
    """Numbers of blocks: allocated between guard pages, refused for lack of room, and not freed yet."""

    guarded: int
    refused: int
    live: int


def unavailable() -> str | None:
    """The reason why the allocator cannot be used here, or None."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return "guard pages need Linux with glibc"
    if os.sysconf("SC_PAGE_SIZE") != 4096:
        return "guard pages need pages of 4096 bytes"
    if shutil.which("g++") is None:
        return "guard pages need g++"
    return None


def library() -> Path:
    """The allocator's library, compiled if necessary.

    Raises:
        subprocess.CalledProcessError: g++ failed; OSError: the file cannot be written.
    """
    flags = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fno-builtin-malloc", "-Wall", "-Werror")

    def build() -> bytes:
        with tempfile.NamedTemporaryFile(suffix=".so") as made:
            subprocess.run(["g++", *flags, str(_SOURCE), "-o", made.name, "-ldl"], check=True)
            return Path(made.name).read_bytes()

    return cached_path(f"guard-{digest([_SOURCE], _SOURCE.parent, *flags)}.so", build)


def environment(**more: str) -> dict[str, str]:
    """This process's environment with the allocator preloaded, and ``more``."""
    return {**os.environ, "LD_PRELOAD": str(library()), **more}


def present() -> bool:
    """Whether this process has the allocator."""
    return hasattr(ctypes.CDLL(None), "guard_arm")


@contextmanager
def armed(where: Literal["behind", "before"] = "behind", smallest: int = 0, largest: int = 1 << 40) -> Iterator[None]:
    """Put blocks of ``smallest`` to ``largest`` bytes between guard pages, in all threads; not to be nested.

    Raises:
        RuntimeError: this process was not started in `environment`.
    """
    if not present():
        raise RuntimeError("the guarding allocator is not in this process: start it with guard.environment()")
    allocator: Any = ctypes.CDLL(None)
    _numpy_through(allocator)
    allocator.guard_arm.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)
    if not allocator.guard_arm(_KINDS[where], smallest, largest):
        raise RuntimeError("there is no address space for guard pages")
    try:
        yield
    finally:
        allocator.guard_disarm()


def counts() -> Counts:
    """The counts since the process began."""
    found = (ctypes.c_long * 3)()
    allocator: Any = ctypes.CDLL(None)
    allocator.guard_counts(found)
    return Counts(*found)


def copy(data: bytes | memoryview) -> memoryview:
    """A read-only copy that ends (or begins) at a guard page if the allocator is armed."""
    return np.frombuffer(data, np.uint8).copy().data.toreadonly()


def _numpy_through(allocator: Any) -> None:
    """Let NumPy use the allocator for every array, as it otherwise caches and reuses small blocks."""
    core = sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"]
    pointer_of: Any = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = ctypes.cast(pointer_of(core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    capsule = ctypes.cast(table[_DEFAULT_HANDLER], ctypes.POINTER(ctypes.py_object))[0]
    handler = pointer_of(capsule, b"mem_handler")
    functions = (ctypes.c_void_p * 5).from_address(handler + _NAME_AND_VERSION)
    for place, name in enumerate(("malloc", "calloc", "realloc", "free"), 1):
        functions[place] = ctypes.cast(getattr(allocator, f"guard_numpy_{name}"), ctypes.c_void_p).value
