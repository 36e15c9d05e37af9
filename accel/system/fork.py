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
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

Hook = Callable[[], object]


def register(*, before: Hook | None = None, in_parent: Hook | None = None, in_child: Hook | None = None) -> None:
    """Call ``before`` ahead of every fork, and the others after it, for as long as the process lives."""
    hooks = {"before": before, "after_in_parent": in_parent, "after_in_child": in_child}
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**{when: hook for when, hook in hooks.items() if hook is not None})


def leave_to_parent(owned: object) -> None:
    """Keep an object of the parent's in this child for ever: to end it is to wait for threads, or to ask a GPU, that
    a child does not have."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owned))


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


# -- children, and whether they still live, which look at what this process looked at when they began --------------


class _Child(NamedTuple):
    """A child, by a number that ``count`` had after it had begun; ``pipe``: to read from, None if there is none."""

    forks: int
    pipe: int | None


_children: list[_Child] = []
_begun: list[None] = []  # an item for each fork
_done: list[None] = []
_pipes: list[tuple[int, int] | None] = []  # of children that may not have begun yet; None: there were none left
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
        return bool(_pipes) or any(child.forks > forks for child in _children)


def _look() -> None:
    pipes = _pipes.copy()
    begun = len(_begun)
    if len(_done) >= begun:  # no thread is about to fork
        del _pipes[: len(pipes)]
        for pipe in pipes:
            if pipe is not None:
                os.close(pipe[1])
                os.set_blocking(pipe[0], False)
            _children.append(_Child(count(), None if pipe is None else pipe[0]))
    for child in tuple(_children):
        if child.pipe is not None and _ended(child.pipe):
            _children.remove(child)
            os.close(child.pipe)


def _ended(pipe: int) -> bool:
    try:
        return not os.read(pipe, 1)
    except BlockingIOError:
        return False


def _begin_child() -> None:
    if any(wanted() for wanted in _reasons):
        with _looking:
            _look()
        _begun.append(None)
        try:
            _pipes.append(os.pipe())
        except OSError:  # too many files are open: it lives for ever, then
            _pipes.append(None)
    else:
        _begun.append(None)


def _forget_children() -> None:
    _begun.append(None)
    for child in _children:
        if child.pipe is not None:
            os.close(child.pipe)
    for pipe in _pipes:
        if pipe is not None:  # the other end is held, and never used
            os.close(pipe[0])
    _children.clear()
    _pipes.clear()


# in the parent none of Python's functions, in which an interrupt would be lost
register(before=_begin_child, in_parent=partial(_done.append, None), in_child=_forget_children)
