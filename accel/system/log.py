"""The logger "accel", and when it is written to: the only file that does.

Whoever formats a record holds the handler's lock, and may well wait for a value that accel computes (``log.info("%s",
images)``). So a thread of accel's own never logs, and a user's never while it holds a lock of accel's, nor does it wait
for a handler that another thread is using. What is to be said is noted, and logged where a user's call is about to
return (``flush``), or when the process ends. What must be said before that is, unless a handler is in use
(``at_once``).
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
from collections import deque
from collections.abc import Iterator
from functools import cache
from traceback import walk_stack
from typing import Any

from accel.system import fork

DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING

_log = logging.getLogger("accel")
_notes: deque[tuple[Any, ...]] = deque(maxlen=1000)
_thread = threading.local()


def note(level: int, message: str, *arguments: object) -> None:
    """Log this, now or at the next safe place; may be called anywhere."""
    _notes.append((level, message, *arguments))
    flush()


once = cache(note)
"""``note``, the first time that this is said."""


def flush() -> None:
    """Log what was noted, if this is a safe place. For the end of what users call."""
    if _notes and not (hasattr(_thread, "is_ours") or fork.holds_any() or _pins()):
        while _notes:
            try:
                noted = _notes.popleft()
            except IndexError:  # another thread was faster
                break
            if not _logged(*noted):
                _notes.appendleft(noted)
                break


class _Flushing:
    """``flush`` at the end of a block."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        flush()


flushing = _Flushing()


def at_once(level: int, message: str) -> None:
    """Log this before what follows, which takes long, if that is possible without waiting for anybody."""
    if not _logged(level, message):
        _notes.append((level, message))


def _logged(level: int, message: str, *arguments: object) -> bool:
    """Log this unless another thread is at work in a handler: it may be waiting for what this one has."""
    held: list[Any] = []
    try:
        for handler in _handlers():
            if handler.lock is not None:
                if not handler.lock.acquire(blocking=False):
                    return False
                held.append(handler.lock)
        _log.log(level, message, *arguments)
    finally:
        for lock in held:
            lock.release()
    return True


def is_ours() -> None:
    """Say that this thread is one of accel's own."""
    _thread.is_ours = True


def _pins() -> bool:
    """Whether this is a DataLoader's pin thread, for which whoever takes a batch waits."""
    return any(frame.f_code.co_name == "_pin_memory_loop" for frame, _ in walk_stack(sys._getframe()))


def _handlers() -> Iterator[logging.Handler]:
    """The handlers that a record of the logger's may be handed to."""
    logger: logging.Logger | None = _log
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None
    if logging.lastResort is not None:
        yield logging.lastResort


@atexit.register
def _at_exit() -> None:
    while _notes:
        _log.log(*_notes.popleft())


fork.register(in_child=_notes.clear)  # its parent will log them
