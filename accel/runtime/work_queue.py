"""Threads of ours: a few pools for the process, made when they are needed, and anew in a forked child."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from queue import SimpleQueue

from accel.system import fork, log

Work = Callable[[bool], None]
"""What a pool runs, with True; or calls with False, if the interpreter ends before its turn."""


class Pool:
    """Threads that take work in the order in which it came."""

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
        """Add work. Never waits, and may be called by a finaliser, which may run inside any other call."""
        if self._ending:
            work(False)
        else:
            self._queue.put(work)

    def end(self) -> None:
        """Let what is being done be finished, and nothing else be begun."""
        self._ending = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        log.is_ours()
        while (work := self._queue.get()) is not None:
            work(not self._ending)
            del work  # and what it refers to, before the next one comes


_pools: dict[str, Pool] = {}
_lock = fork.Lock()


def pool(name: str, threads: int) -> Pool:
    """The pool of that name, made with so many threads if there is none."""
    with _lock:
        if name not in _pools:
            _pools[name] = Pool(name, threads)
        return _pools[name]


def _end() -> None:
    for each in _pools.values():
        each.end()


atexit.register(_end)
fork.register(in_child=_pools.clear)
