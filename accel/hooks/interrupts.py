"""``sys.unraisablehook``: an interrupt (Ctrl-C) that arrives in one of accel's finalizers comes again a moment later.

Python prints an exception that is raised in a finalizer, an interrupt's as well, and goes on. accel has finalizers
where torch has none: they give the memory of batches back. And torch lets other threads run just before it frees a
tensor's memory. So a loop over a loader spends a few percent of its time where an interrupt would be lost.

What a finalizer of other code loses is left to Python, and so is an interrupt where a program handles SIGINT itself: it
would be told of two.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from accel.hooks.patch import Attribute

_MOMENT = 0.01  # seconds, after which a finalizer has ended; in another one the interrupt is put off once more


def _again() -> None:
    time.sleep(_MOMENT)
    if hasattr(signal, "pthread_kill"):  # unlike the other, it ends a system call that waits
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _is_ours(error: Any) -> bool:
    """Whether an interrupt ended a function of accel's that Python itself had called."""
    if not issubclass(error.exc_type, KeyboardInterrupt) or error.exc_traceback is None or sys.is_finalizing():
        return False
    called = error.exc_traceback.tb_frame.f_globals.get("__name__") or ""
    return called.startswith("accel.") and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _unraisable(original: Callable[[Any], object] | None) -> Callable[[Any], object]:
    shown = original or sys.__unraisablehook__

    @wraps(shown)
    def unraisable(error: Any) -> object:
        if not _is_ours(error):
            return shown(error)
        # not by ``threading``, one of whose locks the code that the finalizer has interrupted may hold
        return _thread.start_new_thread(_again, ())

    return unraisable


PATCHES = (Attribute("sys.unraisablehook", _unraisable),)
