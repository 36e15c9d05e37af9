"""Host memory: reused buffers for results, and tensors in shared memory; and the keys of files.

Fresh pages are expensive: the operating system takes longer to hand out the pages of a 224 x 224 float image than accel
takes to fill them. So memory that nothing refers to any more is used again.
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
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch.multiprocessing import get_sharing_strategy

from accel.system import fork
from accel.system.page_locks import Block
from accel.system.private_names import private

private("torch", "UntypedStorage._new_shared", "UntypedStorage._new_shared_fd_cpu")

Key = tuple[int, int, int, int, int]
"""Identifies a file and its state without a look at its content.

Device, inode, size in bytes, and the times of the last write and of the last change of anything, in nanoseconds.
"""

SETTLED = 2.0
"""Age in seconds from which a file's times show every later change: some clocks count seconds, some only even ones."""

Allocate = Callable[[Sequence[int], torch.dtype], torch.Tensor]
"""Makes an uninitialised, contiguous tensor of a shape and dtype."""


def anonymous_file(size: int, name: str = "accel") -> int:
    """Make a file in memory, which needs no file system (/dev/shm may be full); return its descriptor.

    ``name``: what ``/proc`` shows; nothing can be opened by it.

    Raises:
        OSError, AttributeError: this system has no such files.
    """
    file = os.memfd_create(name)
    try:
        os.ftruncate(file, size)
    except BaseException:
        os.close(file)
        raise
    return file


def shared(shape: Sequence[int], dtype: torch.dtype, *, sparse: bool = False) -> torch.Tensor:
    """An uninitialised tensor in shared memory: sending it to another process sends a handle.

    ``sparse``: it takes memory only for pages that are used, and is zero at first.

    Raises:
        RuntimeError: torch's own, where the system has no memory to share.
    """
    size = prod(shape) * dtype.itemsize
    storage = anonymous_storage(size, sparse) if size and get_sharing_strategy() == "file_descriptor" else None
    if storage is None:
        storage = torch.UntypedStorage._new_shared(size, device="cpu")
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, tuple(shape))  # type: ignore[call-overload,no-any-return]


def anonymous_storage(size: int, sparse: bool = False) -> torch.UntypedStorage | None:
    """Storage like that of torch's sharing strategy "file_descriptor", but in no file system; None: there is no memory,
    or this system has no such files."""
    with suppress(OSError, AttributeError, RuntimeError):
        file = anonymous_file(size)
        try:
            if not sparse:  # else a first write to a page could find no memory, which ends the process
                os.posix_fallocate(file, 0, size)
            return torch.UntypedStorage._new_shared_fd_cpu(file, size)  # type: ignore[attr-defined,no-any-return]
        finally:
            os.close(file)
    return None


class Lease(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes that are released when the last array or tensor that is a view of them is gone: calls ``on_release``.

    After a fork two processes use them, and neither knows when the other is done. So both call ``after_fork`` instead,
    with the number of forks (``fork.count``) at the time of the lease. ``about``: what its user notes on it.
    """

    _born: int
    about: Sequence[int] = ()
    on_release: Callable[[], object] | None = None
    after_fork: Callable[[int], object] | None = None

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if ending():  # the names of modules may be gone, and the memory goes with the process
            return
        if self.on_release is not None and self._born == fork.count():
            self.on_release()
        elif self.after_fork is not None:
            self.after_fork(self._born)


def lease(memory: npt.NDArray[np.uint8], size: int) -> Lease:
    """A lease of the first ``size`` bytes; its ``on_release`` is called once there is no view of them."""
    lease = memory[:size].view(Lease)
    lease._born = fork.count()
    return lease


class _Block:
    """Memory that is lent as one array at a time.

    Attributes:
        size: its bytes. last, until: how long it is kept while unused: the number of a result, and a time in seconds.
        pages: for devices that lock it, if any has asked. born: the number of forks when it was lent last; what this
            process writes to it after another fork may go to other pages than those that a device has locked.
    """

    def __init__(self, size: int) -> None:
        self.memory, self.size = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), size
        self.pages: Block | None = None
        self.last, self.until, self.born = 0, 0.0, 0
        with suppress(OSError, AttributeError):  # a system without huge pages
            self.memory.madvise(mmap.MADV_HUGEPAGE)


class Results:
    """Memory for the batches computed in this process: blocks that are used again if they fit.

    A list of images of several sizes takes a block per image, in another order of sizes each time. A block that was
    lent before a fork is not used again: two processes use it, and neither knows when the other is done.
    """

    _SMALLEST = 1 << 20  # below, torch's allocator keeps pages itself
    _IDLE_BLOCKS = 3  # kept up to _IDLE_BYTES in all; more of them up to this many bytes in all:
    _IDLE_SMALL_BYTES = 1 << 28
    _IDLE_BYTES = 1 << 30
    _SMALL = 1 << 25
    _PATIENCE, _PATIENCE_SMALL = 16, 256  # results after which an unused block, a small one, is freed
    _SECONDS = 10.0  # after which an unused block is freed in any case

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Block] = []  # the most recently used first
        self._lent: WeakValueDictionary[int, _Block] = WeakValueDictionary()  # by the address
        self._left: list[_Block] = []  # that are not used again
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
        return self._lend(size).view(dtype).view(tuple(shape))

    def lent(self, size: int) -> npt.NDArray[np.uint8]:
        """Uninitialised bytes, uint8 [size], which begin at a page; all views of them, and tensors, keep them alive."""
        return self._lend(size).numpy()  # not the lease: its views would be leases, too

    def _lend(self, size: int) -> torch.Tensor:
        block = self._take(size)
        own = lease(np.frombuffer(block.memory, np.uint8), size)
        own.on_release = own.after_fork = partial(self._give_back, block)
        tensor, block.born = torch.from_numpy(own), fork.count()
        self._lent[tensor.data_ptr()] = block
        return tensor

    def pages(self, array: npt.NDArray[np.uint8]) -> Block | None:
        """The block that was lent as an array which begins where this one does, to be locked; else None."""
        address = array.__array_interface__["data"][0]
        block = self._lent.get(address)
        if block is not None and block.pages is None:
            block.pages = Block(address, block.size)
        return None if block is None else block.pages

    def _take(self, size: int) -> _Block:
        with self._lock:
            self._clock += 1
            self._let_go()
            best = None
            for block in self._idle:
                if size <= block.size <= 2 * size and (best is None or block.size < best.size):
                    best = block
            if best is not None:
                self._idle.remove(best)
                return best
        step = 1 << (size.bit_length() - 4)  # rounded up, so that it also fits slightly larger results
        return _Block(-(-size // step) * step)

    def _let_go(self) -> None:
        """Free blocks that have been idle for too many results or too long; the caller holds the lock."""
        clock, now = self._clock, time.monotonic()
        for block in self._idle[:]:
            if block.last < clock or block.until <= now or (block.pages is not None and block.born != fork.count()):
                self._idle.remove(block)
                self._left.append(block)
        while self._left:
            if (pages := self._left.pop().pages) is not None:
                pages.end()

    def _give_back(self, block: _Block, born: int | None = None) -> None:
        """``born``: given if a forked child may use the block as well (``Lease.after_fork``).

        Takes no lock, and never waits for a device: the garbage collector may call this inside any allocation.
        """
        total = block.size + sum([each.size for each in self._idle])
        most = self._IDLE_BYTES if len(self._idle) < self._IDLE_BLOCKS else self._IDLE_SMALL_BYTES
        if born is None and total <= most:
            block.last = self._clock + (self._PATIENCE_SMALL if block.size <= self._SMALL else self._PATIENCE)
            block.until = time.monotonic() + self._SECONDS
            self._idle.insert(0, block)
        elif block.pages is not None:
            self._left.append(block)


def key_of(status: os.stat_result) -> Key | None:
    """The key of a file by its status, which must be taken before the file is read.

    None if its times cannot be trusted: they are not ``SETTLED``, lie in the future, or come from a file system whose
    third time is that of the file's creation.
    """
    written, changed = status.st_mtime_ns, status.st_ctime_ns
    if 0 <= written <= changed <= (time.time() - SETTLED) * 1e9:
        return status.st_dev, status.st_ino, status.st_size, written, changed
    return None


class Scratch(threading.local):
    """A thread's memory for short use: the same bytes each time, unless a view of them is still in use."""

    def __init__(self) -> None:
        self._block = np.empty(1 << 16, np.uint8)
        self._unused = self._count()

    def _count(self) -> int:
        return sys.getrefcount(self._block)

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """Return uninitialised bytes, uint8 [size]."""
        if len(self._block) < size or self._count() != self._unused:
            self._block = np.empty(max(size, len(self._block)), np.uint8)
        return self._block[:size]


results = Results()
fork.register(in_child=results.__init__)  # type: ignore[misc]  # a child would only copy its parent's pages
