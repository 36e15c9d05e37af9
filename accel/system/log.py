"""The logger "accel", which no other file writes to, and when messages are logged.

A thread that formats a record holds the handler's lock, and may be waiting for a value that accel computes
(``log.info("%s", images)``). So accel's own threads never log, a user's thread does not while it holds a lock of
accel's, and neither waits for a handler that another thread is using. Messages are noted, and logged where a user's
call is about to return (``flush``), or when the process ends; urgent ones are logged at once unless a handler is in use
(``at_once``).
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from traceback import walk_stack
from typing import Any

from accel.system import fork, shared_list

DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING

_log = logging.getLogger("accel")
_notes: deque[tuple[Any, ...]] = deque(maxlen=1000)
_thread = threading.local()


def note(level: int, message: str, *arguments: object) -> None:
    """Log a message, now or at the next safe place; may be called anywhere."""
    _notes.append((level, message, *arguments))
    flush()


_texts: dict[str, object] = {}


def first(text: str) -> bool:
    """Whether this call is the first with a text, in this process and those that share its list (``shared_list``)."""
    own = object()
    if _texts.setdefault(text, own) is not own:
        return False
    prefix, process = f"logged {text}\1", str(os.getpid())
    if not shared_list.entries(prefix):
        with suppress(OSError):
            shared_list.append(prefix + process)
    return shared_list.entries(prefix)[:1] in ([], [process])


def once(level: int, message: str, *arguments: object) -> None:
    """``note``, but each message only once in this process and those that it starts."""
    if first(message % arguments):
        note(level, message, *arguments)


def flush() -> None:
    """Log the noted messages, if this is a safe place. For the end of functions that users call."""
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
    """A context that calls ``flush`` at its end."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        flush()


flushing = _Flushing()


def at_once(level: int, message: str) -> None:
    """Log a message before something slow begins, or note it if a handler is in use."""
    if not _logged(level, message):
        _notes.append((level, message))


def _logged(level: int, message: str, *arguments: object) -> bool:
    """Log a message and return True; False if another thread is using a handler, as it may be waiting for this one."""
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
    """Mark this thread as one of accel's own."""
    _thread.is_ours = True


def _pins() -> bool:
    """Whether this is a DataLoader's pin thread, which the thread that takes a batch waits for."""
    return any(frame.f_code.co_name == "_pin_memory_loop" for frame, _ in walk_stack(sys._getframe()))


def _handlers() -> Iterator[logging.Handler]:
    """The handlers that may get the logger's records."""
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


fork.register(in_child=_notes.clear)  # the parent logs them
