"""Ending a spawned worker: its process exits when its work is done, without a shutdown of the interpreter.

A shutdown ends daemon threads as soon as they ask for the GIL. The thread that sends a worker's batches may then be
returning from torch's C++ code, through functions that no exception may pass: "terminate called without an active
exception", and SIGABRT. Forked workers, and those of a fork server, exit without a shutdown anyway.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from io import BufferedIOBase, IOBase, TextIOBase
from typing import Any
from zipfile import ZipFile


def leaves(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that a worker runs: if it returns, the process exits in this way; if it raises, as usual."""

    @wraps(loop)
    def run(*args: Any) -> Any:
        result = loop(*args)
        atexit.register(_leave)  # registered last, so called first; forked children of multiprocessing call none
        return result

    return run


def _leave() -> None:
    atexit.unregister(_leave)
    atexit._run_exitfuncs()
    found = gc.get_objects()
    for kinds, end in _ENDS:
        for each in found:
            if issubclass(type(each), kinds) and (end == "flush" or type(each).__module__ != "_io"):
                with suppress(Exception):
                    getattr(each, end)()
    for each in (sys.stdout, sys.stderr):
        with suppress(Exception):
            each.flush()
    os._exit(0)


_FILE, _BUFFERED, _TEXT = (each.__base__ for each in (IOBase, BufferedIOBase, TextIOBase))
"""The base classes in C of all file objects; to check for these runs no code of the object's."""

_ENDS: Any = ((_TEXT, "flush"), (ZipFile, "close"), (_BUFFERED, "close"), (_FILE, "flush"))
"""The method called on files of each class, in order; compressing files, made in Python, still have to write an end."""
