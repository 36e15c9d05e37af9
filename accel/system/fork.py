"""Functions to call around a fork of this process, where the system has forks, and locks that survive one.

A forked child has only the thread that forked. What other threads were doing is never finished there, and locks that
they held would be held for ever. So a ``Lock`` is new in the child, which is right if the state that it guards is
consistent at every moment. If that may be half made, ``wait_for`` has the fork wait for the lock.

A watched child holds one end of a pipe that nobody writes to: when it and all processes that it forked have ended, the
other end reads end-of-file.
"""

from __future__ import annotations

import _thread
import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from typing import Any, TypeVar

Hook = Callable[[], object]
Value = TypeVar("Value")


def register(**hooks: Hook) -> None:
    """Call ``before`` ahead of every fork, ``in_parent`` and ``in_child`` after it, as long as the process lives."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**{when if when == "before" else f"after_{when}": hook for when, hook in hooks.items()})


def leave_to_parent(owned: object, keep: Any = ctypes.pythonapi.Py_IncRef, of: Any = ctypes.py_object) -> None:
    """Keep an object of the parent's alive in this child for ever: its destructor would wait for threads, or use a GPU,
    that a child does not have."""
    keep(of(owned))  # the defaults, because a module's names may be gone at the interpreter's exit


# -- locks that are new in a child --------------------------------------------------------------------------

_locks: dict[int, list[Lock]] = {}  # by thread: the locks that it holds, and the one that it waits for
_properties: list[Any] = []


class Lock:
    """A reentrant lock that is new (free) in a forked child, unless the thread that forked holds it."""

    _inner: Any = None  # made when it is first taken, which most lazy tensors' locks never are

    def acquire(self) -> None:
        locks = _locks.setdefault(threading.get_ident(), [])
        inner = self._inner or self.__dict__.setdefault("_inner", threading.RLock())
        locks.append(self)  # before it is held, because a fork may come in between
        try:
            inner.acquire()
        except BaseException:  # an interrupt
            if locks.count(self) == 1 and inner._is_owned():
                inner.release()
            locks.remove(self)
            raise

    def release(self, *_: object) -> None:
        try:
            self._inner.release()
        finally:
            _locks[threading.get_ident()].remove(self)

    __enter__, __exit__ = acquire, release


class cached_property(functools.cached_property[Value]):
    """One whose lock is new in a forked child: before Python 3.12 all objects of a class share one, held while any
    thread computes the property of any of them."""

    def __init__(self, function: Callable[[Any], Value]) -> None:
        super().__init__(function)
        if hasattr(self, "lock"):
            _properties.append(self)


def holds_any() -> bool:
    """Whether this thread holds a ``Lock``."""
    return any(lock._inner is not None and lock._inner._is_owned() for lock in _locks.get(threading.get_ident(), ()))


def _renew_locks() -> None:
    thread = threading.get_ident()
    own = _locks.pop(thread, [])
    for lock in (lock for locks in _locks.values() for lock in locks):
        if lock not in own:
            lock.__dict__.pop("_inner", None)
    _locks.clear()
    _locks[thread] = own
    for each in _properties:
        each.lock = threading.RLock()


# -- locks that a fork waits for ----------------------------------------------------------------------------


IMPORTS, SWITCH, COMPILING, CACHES, COUNTERS, SWAPS = range(6)
"""The order of the locks that a fork waits for: one may be taken while others of smaller numbers are held."""

_waited_for: list[tuple[int, Callable[[], Any]]] = []
_held: dict[int, list[Any]] = {}  # by thread that is forking
_interrupts: list[tuple[()]] = []  # one item for each KeyboardInterrupt that was lost in a fork


def wait_for(find: Callable[[], Any], order: int) -> None:
    """Have every fork wait until no other thread holds the lock that ``find`` returns then; None: there is none.

    The lock must be reentrant."""
    _waited_for.append((order, find))
    _waited_for.sort(key=lambda each: each[0])


def _hold() -> None:
    held = _held[threading.get_ident()] = []
    try:
        for _, find in _waited_for:
            if (lock := find()) is not None:
                lock.acquire()
                held.append(lock)
    except KeyboardInterrupt:  # Python forks all the same, and drops the exception
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
# Python would raise the interrupt in the next hook written in Python, or where it warns of forks beside threads (3.13),
# and drop it again: so these hooks are in C, and the interrupt comes when the fork is over
register(in_parent=partial(sorted, _interrupts, key=partial(_thread.start_new_thread, _interrupt_soon)))
register(in_parent=_interrupts.clear)


# -- watched children: whether any still lives that shares memory with this process -------------------------------

_children: list[tuple[int, int | None]] = []  # (``count()`` after the fork, the pipe to read from; None: no pipe)
_starts: list[None] = []  # an item for each fork
_ends: list[None] = []
_pipes: list[tuple[int, int] | tuple[None, None]] = []  # of children that may not have begun yet
_reasons: list[Callable[[], bool]] = []
_looking = Lock()


def count() -> int:
    """A number that grows with every fork, in the parent and in the child."""
    return len(_starts) + len(_ends)


def watch_children_where(condition: Callable[[], bool]) -> None:
    """Watch the children that are forked while ``condition()`` is true."""
    _reasons.append(condition)


def children_since(forks: int) -> bool:
    """Whether a watched child may still live that was forked when ``count()`` had this value, or later."""
    with _looking:
        _look()
        return bool(_pipes) or any(start > forks for start, _ in _children)


def _look() -> None:
    pipes = _pipes.copy()
    forks = len(_starts)
    if len(_ends) >= forks:  # no thread is about to fork
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
    watched = any(condition() for condition in _reasons)
    if watched:
        with _looking:
            _look()
    _starts.append(None)
    if watched:
        try:
            _pipes.append(os.pipe())
        except OSError:  # too many files are open: the child counts as alive for ever
            _pipes.append((None, None))


def _forget_children() -> None:
    _starts.append(None)
    for pipe in (*(pipe for _, pipe in _children), *(pipe for pipe, _ in _pipes)):  # the other ends stay open
        if pipe is not None:
            os.close(pipe)
    _children.clear()
    _pipes.clear()


# the parent's hook is in C: in a Python function an interrupt would be lost
register(before=_begin_child, in_parent=partial(_ends.append, None), in_child=_forget_children)
