"""Functions to call around a fork of this process, where the system has forks, and locks that survive one.

A forked child has only the thread that forked. What its parent's other threads were doing is never finished there, and
what they held would be held for ever. So a ``Lock`` is new in the child, which is right where what it guards is sound
at every moment. Where that may be half made, ``wait_for`` has the fork wait until it is whole.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

Hook = Callable[[], object]


def register(*, before: Hook | None = None, in_parent: Hook | None = None, in_child: Hook | None = None) -> None:
    """Call ``before`` ahead of every fork, and the others after it, for as long as the process lives."""
    hooks = {"before": before, "after_in_parent": in_parent, "after_in_child": in_child}
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**{when: hook for when, hook in hooks.items() if hook is not None})


# -- locks that a child has anew ----------------------------------------------------------------------------

_taken: dict[int, list[Lock]] = {}  # by each thread: those that it holds, and the one that it waits for


class Lock:
    """A lock that its holder may take again; a forked child has it anew, unless the thread that forked holds it."""

    _inner: Any = None  # made when it is first taken: most lazy tensors' never is

    def acquire(self) -> None:
        taken = _taken.setdefault(threading.get_ident(), [])
        inner = self._inner or self.__dict__.setdefault("_inner", threading.RLock())
        taken.append(self)  # before it is held, for a fork may come in between
        try:
            inner.acquire()
        except BaseException:  # an interrupt
            if taken.count(self) == 1 and inner._is_owned():
                inner.release()
            taken.remove(self)
            raise

    def release(self) -> None:
        try:
            self._inner.release()
        finally:
            _taken[threading.get_ident()].remove(self)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def holds_any() -> bool:
    """Whether this thread holds a ``Lock``."""
    return any(lock._inner is not None and lock._inner._is_owned() for lock in _taken.get(threading.get_ident(), ()))


def _renew_locks() -> None:
    thread = threading.get_ident()
    own = _taken.pop(thread, [])
    for lock in (lock for locks in _taken.values() for lock in locks):
        if lock not in own:
            lock.__dict__.pop("_inner", None)
    _taken.clear()
    _taken[thread] = own


# -- locks that a fork waits for ----------------------------------------------------------------------------


class Holdable(Protocol):
    def acquire(self) -> Any: ...
    def release(self) -> Any: ...


NATIVE_STDERR, IMPORTS, SWITCH, COMPILING, COUNTERS, SWAPS = range(6)
"""The order of those that a fork waits for: one may be taken while others of smaller numbers are held."""

_waited_for: list[tuple[int, Holdable]] = []
_held: dict[int, list[Holdable]] = {}  # by each thread that is forking just now
_interrupts: list[tuple[signal.Signals]] = []  # signals that were lost to a fork


def wait_for(lock: Holdable, order: int) -> None:
    """Have every fork wait until no other thread holds this lock, which its holder must be able to take again."""
    _waited_for.append((order, lock))
    _waited_for.sort(key=lambda each: each[0])


def _hold() -> None:
    held = _held[threading.get_ident()] = []
    try:
        for _, lock in _waited_for:
            lock.acquire()
            held.append(lock)
    except KeyboardInterrupt:  # Python forks all the same, and forgets it
        _interrupts.append((signal.SIGINT,))


def _let_go() -> None:
    for lock in reversed(_held.pop(threading.get_ident(), [])):
        lock.release()


def _in_child() -> None:
    _renew_locks()
    _let_go()
    _held.clear()
    _interrupts.clear()


def _interrupt_soon(signum: signal.Signals) -> None:
    time.sleep(0.05)
    _thread.interrupt_main(signum)


register(before=_hold, in_parent=_let_go, in_child=_in_child)
# Python would raise it in the next hook that is of Python's, or where it warns of forks beside threads (3.13), and
# forget it again: so these are not of Python's, and it comes when the fork is over
register(in_parent=partial(sorted, _interrupts, key=partial(_thread.start_new_thread, _interrupt_soon)))
register(in_parent=_interrupts.clear)
