"""Forks of this process, and whether children of it still live, which look at what it looked at when they began.

A child holds the end of a pipe that nobody writes to: when it and all that it forked have ended, the other end is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from accel.system import fork


class _Child(NamedTuple):
    """A child, by a number that ``forks`` had after it had begun; ``pipe``: to read from, None if there is none."""

    forks: int
    pipe: int | None


_children: list[_Child] = []
_begun: list[None] = []  # an item for each fork
_done: list[None] = []
_pipes: list[tuple[int, int] | None] = []  # of children that may not have begun yet; None: there were none left
_reasons: list[Callable[[], bool]] = []
_lock = fork.Lock()


def forks() -> int:
    """A number that has grown after every fork, in the parent and in the child."""
    return len(_begun) + len(_done)


def watch_where(wanted: Callable[[], bool]) -> None:
    """Have children watched that are forked while ``wanted()`` holds."""
    _reasons.append(wanted)


def since(forks: int) -> bool:
    """Whether a watched child may live that was forked when ``forks()`` had this value, or later."""
    with _lock:
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
            _children.append(_Child(forks(), None if pipe is None else pipe[0]))
    for child in tuple(_children):
        if child.pipe is not None and _ended(child.pipe):
            _children.remove(child)
            os.close(child.pipe)


def _ended(pipe: int) -> bool:
    try:
        return not os.read(pipe, 1)
    except BlockingIOError:
        return False


def _before() -> None:
    if any(wanted() for wanted in _reasons):
        with _lock:
            _look()
        _begun.append(None)
        try:
            _pipes.append(os.pipe())
        except OSError:  # too many files are open: it lives for ever, then
            _pipes.append(None)
    else:
        _begun.append(None)


def _in_child() -> None:
    _begun.append(None)
    for child in _children:
        if child.pipe is not None:
            os.close(child.pipe)
    for pipe in _pipes:
        if pipe is not None:  # the other end is held, and never used
            os.close(pipe[0])
    _children.clear()
    _pipes.clear()


# in the parent none of Python's functions, in which an interrupt would be lost (see fork.py)
fork.register(before=_before, in_parent=partial(_done.append, None), in_child=_in_child)
