"""How a spawned worker ends: its process exits when its work is done, without shutting the interpreter down first.

A shutdown would end daemon threads as soon as they ask for the GIL. The thread that sends a worker's batches would be
coming back from torch's C++ code, through functions that no exception may pass: "terminate called without an active
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
    """The function that a worker runs; where it returns, the process exits so, and where it raises, as usual."""

    @wraps(loop)
    def run(*args: Any) -> Any:
        result = loop(*args)
        atexit.register(_leave)  # the last one, so it is called first; multiprocessing asks nobody in a forked child
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
"""What every file object is made of; to ask whether a thing is one runs no code of it."""

_ENDS: Any = ((_TEXT, "flush"), (ZipFile, "close"), (_BUFFERED, "close"), (_FILE, "flush"))
"""What is done to files, in this order; those that compress, which are made in Python, have an end to write."""
