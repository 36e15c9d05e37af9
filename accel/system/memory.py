"""Host memory: reused buffers for results, and tensors in shared memory; and the keys of files.

Fresh pages are dear: the operating system takes longer to hand out the pages of a 224 x 224 float image than accel
takes to fill them. So memory that nobody refers to any more is used again.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing import get_sharing_strategy

from accel.system import fork
from accel.system.private_names import private

private("torch", "UntypedStorage._new_shared", "UntypedStorage._new_shared_fd_cpu")

Key = tuple[int, int, int, int, int]
"""What tells, without a look at its content, whether a file is the one that was read before.

Device, inode, size in bytes, and the times of the last write and of the last change of anything, in nanoseconds.
"""

SETTLED = 2.0
"""Seconds after which a file's times tell of every change: some clocks count seconds, and some only even ones."""

Allocate = Callable[[Sequence[int], torch.dtype], torch.Tensor]
"""Makes an uninitialised, contiguous tensor of a shape and dtype."""


def anonymous_file(size: int) -> int:
    """The descriptor of a file in memory that has no name, and so needs no file system: /dev/shm may be full.

    Raises:
        OSError, AttributeError: this system has no such files.
    """
    file = os.memfd_create("accel")
    try:
        os.ftruncate(file, size)
    except BaseException:
        os.close(file)
        raise
    return file


def shared(shape: Sequence[int], dtype: torch.dtype, *, sparse: bool = False) -> torch.Tensor:
    """An uninitialised tensor in shared memory: sending it to another process sends a handle.

    ``sparse``: it takes memory where it is used, and is zero before.

    Raises:
        RuntimeError: torch's own, where the system has no memory to share.
    """
    size, storage = prod(shape) * dtype.itemsize, None
    if size and get_sharing_strategy() == "file_descriptor":
        with suppress(OSError, AttributeError, RuntimeError):
            storage = _without_a_name(size, sparse)
    if storage is None:
        storage = torch.UntypedStorage._new_shared(size, device="cpu")
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, tuple(shape))  # type: ignore[call-overload,no-any-return]


def _without_a_name(size: int, sparse: bool) -> torch.UntypedStorage:
    """As torch's sharing strategy "file_descriptor" makes it, but in no file system."""
    file = anonymous_file(size)
    try:
        if not sparse:  # without this, the first write to a page that there is no memory for would end the process
            os.posix_fallocate(file, 0, size)
        return torch.UntypedStorage._new_shared_fd_cpu(file, size)  # type: ignore[attr-defined,no-any-return]
    finally:
        os.close(file)


class Lease(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes that are handed on when the last array or tensor that looks at them is gone.

    After a fork two processes look at them, of which neither knows when the other is done: instead of ``on_release``,
    ``after_fork`` is called with the number of forks (``fork.count``) when they were lent, in both.
    """

    _born: int
    on_release: Callable[[], None] | None = None
    after_fork: Callable[[int], None] | None = None

    def __del__(self) -> None:
        if self.on_release is not None and self._born == fork.count():
            self.on_release()
        elif self.after_fork is not None:
            self.after_fork(self._born)


def lease(memory: npt.NDArray[np.uint8], size: int) -> Lease:
    """The first ``size`` bytes; their ``on_release`` is called once nothing looks at them."""
    lease = memory[:size].view(Lease)
    lease._born = fork.count()
    return lease


_ARRAYS: dict[torch.dtype, Any] = {torch.uint8: np.uint8, torch.float32: np.float32}
"""NumPy's of the dtypes that most results have: each function of torch's takes long that comes but once a batch."""


class _Idle(NamedTuple):
    """A block that nobody uses: until when it is kept, by the number of results and in seconds, and its bytes."""

    last: int
    until: float
    size: int
    block: npt.NDArray[np.uint8]


class Results:
    """Memory for the batches computed in this process: blocks that are used again while they fit.

    A list of images takes as many blocks as there are images, in another order of sizes each time.
    """

    _SMALLEST = 1 << 20  # below, torch's allocator keeps pages itself
    _IDLE_BLOCKS = 3  # and as many more as make this many bytes in all:
    _IDLE_SMALL_BYTES = 1 << 28
    _IDLE_BYTES = 1 << 30
    _SMALL = 1 << 25
    _PATIENCE, _PATIENCE_SMALL = 16, 256  # results for which an idle block, a small one, may be of no use
    _SECONDS = 10.0  # and for how long, whatever the results

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []  # the one that was used last first
        self._clock = 0

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor."""
        size = prod(shape) * dtype.itemsize
        if size < self._SMALLEST:
            with suppress(IndexError):  # another thread took the last one
                if self._idle and self._idle[-1].until <= time.monotonic():
                    with self._lock:
                        self._let_go()
            return torch.empty(tuple(shape), dtype=dtype, device="cpu")
        lent, like = self._lease(size), _ARRAYS.get(dtype)
        if like is None:
            return torch.from_numpy(lent).view(dtype).view(tuple(shape))
        return torch.from_numpy(Lease(shape, like, lent))  # an array of NumPy's own would refer to the block alone

    def lent(self, size: int) -> npt.NDArray[np.uint8]:
        """Uninitialised bytes, which begin at a page."""
        return np.frombuffer(self._lease(size).data, np.uint8)  # a view alone would give back what it looks at

    def _lease(self, size: int) -> Lease:
        block = self._take(size)
        lent = lease(block, size)
        lent.on_release = partial(self._give_back, block)
        return lent

    def _take(self, size: int) -> npt.NDArray[np.uint8]:
        with self._lock:
            self._clock += 1
            self._let_go()
            best = None
            for idle in self._idle:
                if size <= idle.size <= 2 * size and (best is None or idle.size < best.size):
                    best = idle
            if best is not None:
                self._idle = [idle for idle in self._idle if idle is not best]
                return best.block
        step = 1 << (size.bit_length() - 4)  # so that it fits what is a little larger, too
        return _huge_pages(-(-size // step) * step)

    def _let_go(self) -> None:
        """Give back what has been idle for too long, by either measure; the lock is held."""
        clock, now = self._clock, time.monotonic()
        self._idle = [idle for idle in self._idle if idle.last >= clock and idle.until > now]

    def _give_back(self, block: npt.NDArray[np.uint8]) -> None:
        # may run inside any allocation, when the garbage collector finds a batch: never wait for the lock
        if self._lock.acquire(blocking=False):
            size, few = len(block), len(self._idle) < self._IDLE_BLOCKS
            if sum([idle.size for idle in self._idle], size) <= (self._IDLE_BYTES if few else self._IDLE_SMALL_BYTES):
                last = self._clock + (self._PATIENCE_SMALL if size <= self._SMALL else self._PATIENCE)
                self._idle.insert(0, _Idle(last, time.monotonic() + self._SECONDS, size, block))
            self._lock.release()


def _huge_pages(size: int) -> npt.NDArray[np.uint8]:
    """Fresh anonymous memory of this process, in huge pages where the system grants them."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def key_of(status: os.stat_result) -> Key | None:
    """The key of an open file by its status, to be asked for before it is read.

    None where the times cannot be trusted: they are not ``SETTLED``, lie ahead, or are those of a file system whose
    third time is that of the file's making.
    """
    written, changed = status.st_mtime_ns, status.st_ctime_ns
    if 0 <= written <= changed <= (time.time() - SETTLED) * 1e9:
        return status.st_dev, status.st_ino, status.st_size, written, changed
    return None


class Scratch(threading.local):
    """Memory of a thread's own for what is used for a moment: the same again, unless somebody looks at it still."""

    def __init__(self) -> None:
        self._block = np.empty(1 << 16, np.uint8)
        self._unused = self._count()

    def _count(self) -> int:
        return sys.getrefcount(self._block)

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """Uninitialised bytes, uint8 [size]."""
        if len(self._block) < size or self._count() != self._unused:
            self._block = np.empty(max(size, len(self._block)), np.uint8)
        return self._block[:size]


results = Results()
fork.register(in_child=results.__init__)  # type: ignore[misc]  # a child would only copy its parent's pages
