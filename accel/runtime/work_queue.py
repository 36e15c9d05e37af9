"""Queues of work with threads of their own, made when first needed, and anew in a forked child."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from queue import SimpleQueue

from accel.system import fork, log

Work = Callable[[bool], None]
"""A function that a queue calls with True, or with False if the interpreter ends before its turn."""


class WorkQueue:
    """A queue of work for a few threads, first in, first out."""

    def __init__(self, name: str, threads: int) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._ending = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"accel-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, work: Work) -> None:
        """Add work. Never waits, so a finaliser, which may run inside any other call, may call it."""
        if self._ending:
            work(False)
        else:
            self._queue.put(work)

    def end(self) -> None:
        """Wait for the work that is running; what is still queued is called with False."""
        self._ending = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        log.is_ours()
        while (work := self._queue.get()) is not None:
            work(not self._ending)
            del work  # release it, and what it refers to, before waiting for the next


_queues: dict[str, WorkQueue] = {}
_lock = fork.Lock()


def named(name: str, threads: int) -> WorkQueue:
    """The queue of this name, made with so many threads if there is none."""
    with _lock:
        if name not in _queues:
            _queues[name] = WorkQueue(name, threads)
        return _queues[name]


def _end() -> None:
    for each in _queues.values():
        each.end()


atexit.register(_end)
fork.register(in_child=_queues.clear)
