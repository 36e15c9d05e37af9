"""Functions to call around a fork of this process, where the system has forks, and locks that survive one.

A forked child has only the thread that forked. What its parent's other threads were doing is never finished there, and
what they held would be held for ever. So a ``Lock`` is new in the child, which is right where what it guards is sound
at every moment. Where that may be half made, ``wait_for`` has the fork wait until it is whole.

A child that is watched holds the end of a pipe that nobody writes to: when it and all that it forked have ended, the
other end is told.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from typing import Any

Hook = Callable[[], object]


def register(**hooks: Hook) -> None:
    """Call ``before`` ahead of every fork, ``in_parent`` and ``in_child`` after it, while the process lives."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**{when if when == "before" else f"after_{when}": hook for when, hook in hooks.items()})


def leave_to_parent(owned: object, keep: Any = ctypes.pythonapi.Py_IncRef, of: Any = ctypes.py_object) -> None:
    """Keep an object of the parent's in this child for ever: to end it is to wait for threads, or to ask a GPU, that
    a child does not have."""
    keep(of(owned))  # where the interpreter ends, a module's names may be gone


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

    def release(self, *_: object) -> None:
        try:
            self._inner.release()
        finally:
            _taken[threading.get_ident()].remove(self)

    __enter__, __exit__ = acquire, release


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


NATIVE_STDERR, IMPORTS, SWITCH, COMPILING, CACHES, COUNTERS, SWAPS = range(7)
"""The order of those that a fork waits for: one may be taken while others of smaller numbers are held."""

_waited_for: list[tuple[int, Callable[[], Any]]] = []
_held: dict[int, list[Any]] = {}  # by each thread that is forking just now
_interrupts: list[tuple[()]] = []  # those of the keyboard that were lost to a fork


def wait_for(find: Callable[[], Any], order: int) -> None:
    """Have every fork wait until no other thread holds the lock that is found then, if there is one.

    Its holder must be able to take it again."""
    _waited_for.append((order, find))
    _waited_for.sort(key=lambda each: each[0])


def _hold() -> None:
    held = _held[threading.get_ident()] = []
    try:
        for _, find in _waited_for:
            if (lock := find()) is not None:
                lock.acquire()
                held.append(lock)
    except KeyboardInterrupt:  # Python forks all the same, and forgets it
        _interrupts.append(())


def _let_go() -> None:
    for lock in reversed(_held.pop(threading.get_ident(), [])):
        lock.release()


def _in_child() -> None:
    _renew_locks()
    _let_go()
    _held.clear()
    _interrupts.clear()


def _interrupt_soon() -> None:
    time.sleep(0.05)
    _thread.interrupt_main()


register(before=_hold, in_parent=_let_go, in_child=_in_child)
# Python would raise it in the next hook that is of Python's, or where it warns of forks beside threads (3.13), and
# forget it again: so these are not of Python's, and it comes when the fork is over
register(in_parent=partial(sorted, _interrupts, key=partial(_thread.start_new_thread, _interrupt_soon)))
register(in_parent=_interrupts.clear)


# -- children, and whether they still live, which look at what this process looked at when they began --------------

_children: list[tuple[int, int | None]] = []  # each: what ``count`` was after it had begun, a pipe to read from if any
_begun: list[None] = []  # an item for each fork
_done: list[None] = []
_pipes: list[tuple[int, int] | tuple[None, None]] = []  # of children that may not have begun yet
_reasons: list[Callable[[], bool]] = []
_looking = Lock()


def count() -> int:
    """A number that has grown after every fork, in the parent and in the child."""
    return len(_begun) + len(_done)


def watch_children_where(wanted: Callable[[], bool]) -> None:
    """Have children watched that are forked while ``wanted()`` holds."""
    _reasons.append(wanted)


def children_since(forks: int) -> bool:
    """Whether a watched child may live that was forked when ``count()`` had this value, or later."""
    with _looking:
        _look()
        return bool(_pipes) or any(begun > forks for begun, _ in _children)


def _look() -> None:
    pipes = _pipes.copy()
    begun = len(_begun)
    if len(_done) >= begun:  # no thread is about to fork
        del _pipes[: len(pipes)]
        for end, other in pipes:
            if other is not None:
                os.close(other)
            _children.append((count(), end))
    for child in tuple(_children):
        pipe = child[1]
        if pipe is not None and wait([pipe], 0):  # nobody holds the other end
            _children.remove(child)
            os.close(pipe)


def _begin_child() -> None:
    watched = any(wanted() for wanted in _reasons)
    if watched:
        with _looking:
            _look()
    _begun.append(None)
    if watched:
        try:
            _pipes.append(os.pipe())
        except OSError:  # too many files are open: it lives for ever, then
            _pipes.append((None, None))


def _forget_children() -> None:
    _begun.append(None)
    for pipe in (*(pipe for _, pipe in _children), *(pipe for pipe, _ in _pipes)):  # of these the other end is held
        if pipe is not None:
            os.close(pipe)
    _children.clear()
    _pipes.clear()


# in the parent none of Python's functions, in which an interrupt would be lost
register(before=_begin_child, in_parent=partial(_done.append, None), in_child=_forget_children)
