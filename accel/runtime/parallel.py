"""Threads that share the images of a batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from torch.utils.data import get_worker_info

from accel.system import fork, log
from accel.system.cores import cores

T = TypeVar("T")


class ParallelFor:
    """Threads that are started when first needed; the calling thread works with them.

    In a DataLoader worker the calling thread works alone. A forked child starts threads of its own.
    """

    def __init__(self, threads: int | None, name: str) -> None:
        """``threads``: the number that share the work, the caller included; None for one a core."""
        self._threads = threads
        self._name = name
        self._pool: tuple[int, ThreadPoolExecutor] | None = None
        self._lock = fork.Lock()

    @property
    def size(self) -> int:
        if get_worker_info() is not None:
            return 1
        return self._threads or cores()

    def each(self, items: Iterable[T], do: Callable[[T], None]) -> None:
        """Call ``do`` with every item, in any order, also when it fails for some.

        Raises:
            The error of the first item, in their order, for which ``do`` failed.
        """
        items = list(items)
        if len(items) <= 1:
            for item in items:
                do(item)
            return
        todo = iter(enumerate(items))

        def work() -> dict[int, Exception]:
            failed = {}
            for number, item in todo:
                try:
                    do(item)
                except Exception as error:
                    failed[number] = error
            return failed

        tasks: list[Future[dict[int, Exception]]] = []
        with suppress(RuntimeError):  # the interpreter is ending, and starts no more threads
            tasks.extend(self._executor().submit(work) for _ in range(min(self.size, len(items)) - 1))
        failed = work()
        for task in tasks:
            failed.update(task.result())
        if failed:
            raise failed[min(failed)]

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            process = os.getpid()
            if self._pool is None or self._pool[0] != process:  # a forked child has none of its parent's threads
                threads = max(self.size - 1, 1)
                self._pool = process, ThreadPoolExecutor(threads, self._name, initializer=log.is_ours)
            return self._pool[1]
