"""Threads that share the images of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeVar
from weakref import WeakSet

from torch.utils.data import get_worker_info

from accel.system import fork, log, worker_threads
from accel.system.cores import cores

T = TypeVar("T")


class ParallelFor:
    """Threads that are started when first needed; the calling thread works with them.

    They end before a fork, unless they work, and are started again when they are needed.
    """

    def __init__(self, threads: int | str, name: str) -> None:
        """``threads``: the number that share the work, the caller included; "auto": one a core, and in a DataLoader
        worker as many as ``worker_threads`` says."""
        self._fixed = threads if isinstance(threads, int) else None
        self._name = name
        self._lock = fork.Lock()
        self._at_work = 0  # calls that use the threads
        self._pool: ThreadPoolExecutor | None = None
        _all.add(self)

    @property
    def size(self) -> int:
        """The number of threads that share the work now."""
        if self._fixed is not None:
            return self._fixed
        return cores() if get_worker_info() is None else worker_threads.own().number

    def each(self, items: Iterable[T], do: Callable[[T], None]) -> None:
        """Call ``do`` with every item, in any order, also when it fails for some.

        Raises:
            The error of the first item, in their order, for which ``do`` failed.
        """
        items = list(items)
        if not items:
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

        threads = min(self.size, len(items))
        timed = nullcontext() if get_worker_info() is None else worker_threads.own().sharing(threads)
        with timed, self._working(work, threads - 1) as tasks:
            try:
                failed = work()
                for task in tasks:
                    failed.update(task.result())
            except BaseException:  # an interrupt: the others begin with nothing more
                for _ in todo:
                    pass
                raise
        if failed:
            raise failed[min(failed)]

    @contextmanager
    def _working(self, work: Callable[[], T], threads: int) -> Iterator[list[Future[T]]]:
        if threads <= 0:
            yield []
            return
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._fixed or cores(), self._name, initializer=log.is_ours)
            tasks = list[Future[T]]()
            with suppress(RuntimeError):  # the interpreter is ending, and starts no more threads
                tasks.extend(self._pool.submit(work) for _ in range(threads))
            self._at_work += 1
        try:
            yield tasks
        finally:
            with self._lock:
                self._at_work -= 1

    def end_threads(self) -> None:
        """End the threads, unless they are at work."""
        with self._lock:
            if self._pool is not None and not self._at_work:
                self._pool.shutdown()
                self._pool = None


_all = WeakSet[ParallelFor]()


def _end_threads() -> None:
    for each in list(_all):
        each.end_threads()


def _forget_threads() -> None:
    """In a child that was forked while they were at work, and has none of them."""
    for each in list(_all):
        each._pool, each._at_work = None, 0


# a child would not have them, and Python warns of forks beside threads
fork.register(before=_end_threads, in_child=_forget_threads)
