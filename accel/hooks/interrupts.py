"""``sys.unraisablehook``: an interrupt (Ctrl-C) that arrives in a finalizer comes again a moment later.

Python prints an exception that is raised in a finalizer, an interrupt's as well, and goes on. accel has finalizers
where torch has none: they give the memory of batches back. And torch lets other threads run just before it frees a
tensor's memory. So a loop over a loader spends a few percent of its time where an interrupt would be lost.
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


def _unraisable(original: Callable[[Any], object]) -> Callable[[Any], object]:
    @wraps(original)
    def unraisable(error: Any) -> object:
        if not issubclass(error.exc_type, KeyboardInterrupt) or sys.is_finalizing():
            return original(error)
        # not by ``threading``, one of whose locks the code that the finalizer has interrupted may hold
        return _thread.start_new_thread(_again, ())

    return unraisable


PATCHES = (Attribute("sys.unraisablehook", _unraisable),)
