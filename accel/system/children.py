"""Forks of this process, and whether children of it still live, which look at what it looked at when they began.

A child holds the end of a pipe that nobody writes to: when it and all that it forked have ended, the other end is told.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import NamedTuple

from accel.system import fork


class _Child(NamedTuple):
    """A child, by the number of forks when it had begun; ``pipe``: to read from, None if there is none."""

    forks: int
    pipe: int | None


_forks = 0
_children: list[_Child] = []
_pipes: dict[int, tuple[int, int]] = {}  # by each thread that is forking just now
_reasons: list[Callable[[], bool]] = []
_lock = fork.Lock()


def forks() -> int:
    """A number that grows with every fork, in the parent and in the child."""
    return _forks


def watch_where(wanted: Callable[[], bool]) -> None:
    """Have children watched that are forked while ``wanted()`` holds."""
    _reasons.append(wanted)


def since(forks: int) -> bool:
    """Whether a watched child may live that was forked when ``forks()`` had this value, or later."""
    with _lock:
        for child in tuple(_children):
            if child.pipe is not None and _ended(child.pipe):
                _children.remove(child)
                os.close(child.pipe)
        return any(child.forks > forks for child in _children)


def _ended(pipe: int) -> bool:
    try:
        return not os.read(pipe, 1)
    except BlockingIOError:
        return False


def _wanted() -> bool:
    return any(wanted() for wanted in _reasons)


def _count() -> None:
    global _forks
    _forks += 1


def _before() -> None:
    _count()
    if _wanted():
        since(_forks)  # those that have ended need no descriptor any more
        try:
            _pipes[threading.get_ident()] = os.pipe()
        except OSError:  # too many files are open: it lives for ever, then
            _pipes.pop(threading.get_ident(), None)


def _in_parent() -> None:
    _count()  # what another thread made meanwhile, the child may have or not
    pipe = _pipes.pop(threading.get_ident(), None)
    if pipe is not None:
        os.close(pipe[1])
        os.set_blocking(pipe[0], False)
        _children.append(_Child(_forks, pipe[0]))
    elif _wanted():
        _children.append(_Child(_forks, None))


def _in_child() -> None:
    _count()
    own = _pipes.pop(threading.get_ident(), None)
    for end in [child.pipe for child in _children] + [end for pipe in _pipes.values() for end in pipe]:
        if end is not None:
            os.close(end)
    if own is not None:
        os.close(own[0])
    _children.clear()
    _pipes.clear()


fork.register(before=_before, in_parent=_in_parent, in_child=_in_child)
