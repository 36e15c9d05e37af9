"""The kernels on the host with AddressSanitizer and UBSan: faults and undefined behaviour on a GPU end the process.

These include misaligned loads and stores, signed overflow, and casts of numbers that do not fit; and with ``kernels()``
every access to memory that the backend has not given to them.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

FLAGS = (
    *("-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-ffp-contract=off"),
    *("-include", str(Path(__file__).with_name("orders.h"))),
    *("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"),
    "-ftrivial-auto-var-init=pattern",  # shared memory is not zero to begin with
)
LIBRARIES = ("libasan.so", "libubsan.so", "libstdc++.so")  # the first must see the last one's exceptions
MISSING = 77


def present() -> bool:
    """Whether this process has the sanitizers, as started by ``run_again``."""
    return "ACCEL_SANITIZED" in os.environ


def run_again() -> int:
    """Run this program again in a process with the sanitizers; return its exit status, MISSING if there are none."""
    found = []
    for name in LIBRARIES if shutil.which("gcc") else ():
        path = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        found.append(path.strip())
    if not all(map(os.path.isabs, found)) or not found:
        print("gcc's sanitizers are not installed")
        return MISSING
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(found),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "ACCEL_SANITIZED": "1",
    }
    return subprocess.run([sys.executable, *sys.orig_argv[1:]], env=environment, check=False).returncode


@contextmanager
def kernels() -> Iterator[None]:
    """A context in which kernels are built with the sanitizers, and memory between the backend's pieces is poisoned."""
    from accel.backends.cuda import host
    from rig.pieces import divided

    def divide(address: int, size: int, pieces: list[tuple[int, int]]) -> None:
        _poison(address, size)
        for offset, length in pieces:
            _poison(address + offset, length, False)

    os.environ.pop("LD_PRELOAD", None)  # not for the compiler
    with mock.patch.object(host, "function", partial(host.function, flags=FLAGS)), divided(divide, _allow):
        yield


def _poison(address: int, size: int, forbidden: bool = True) -> None:
    """Forbid memory to the kernels, or allow it again."""
    name = "__asan_poison_memory_region" if forbidden else "__asan_unpoison_memory_region"
    function = getattr(ctypes.CDLL(None), name)
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t), None
    function(address, size)


def _allow(address: int, size: int) -> None:
    _poison(address, size, False)
