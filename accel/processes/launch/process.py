"""Running a program as a child and waiting for it, with signals and exit status as if it were this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

_HANDED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
_OF_TERMINAL = ("SIGINT", "SIGQUIT")


def ended(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program; return its exit status, or the negative number of the signal that ended it.

    It shares the terminal and the process group, so it gets Ctrl-C itself; signals that are sent to this process alone
    are passed on.
    """
    process: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, _: Any) -> None:
        if process is not None and not (signal.Signals(number).name in _OF_TERMINAL and _in_foreground()):
            with suppress(ProcessLookupError):
                process.send_signal(number)

    before = {}
    numbers = [getattr(signal, name) for name in _HANDED_ON if hasattr(signal, name)]
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    try:
        for number in set(numbers).difference(ignored):
            before[number] = signal.signal(number, hand_on)
        process = subprocess.Popen(words, env=environment)
        for number in ignored:  # the program inherits that they are ignored, and may handle them itself
            before[number] = signal.signal(number, hand_on)
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether the terminal sends its signals to this process, and so to the program, which is in the same group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except (OSError, AttributeError):
        return sys.platform == "win32"
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def end_as(status: int) -> int:
    """End as a program did: by the same signal, or return the exit status to end with."""
    if status < 0 and os.name != "nt":
        resource = import_module("resource")  # Windows has none
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # it left its own
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        sys.stdout.flush()
        os.kill(os.getpid(), -status)
    return status if status >= 0 else 128 - status
