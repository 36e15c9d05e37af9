"""Running finished work (``finished``): bound to a device's memory, sent, launched; nothing waits for the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.device import ROOM, Device, Work
from accel.backends.cuda.finished import Finished, Section, fill_upload
from accel.backends.cuda.jpeg import Decoding
from accel.backends.cuda.jpeg.decoding import Indexing, Made
from accel.backends.cuda.jpeg.described import places
from accel.backends.cuda.jpeg.headers import Integers
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.backends.cuda.regions import ALIGNED
from accel.runtime.parallel import ParallelFor
from accel.system import counters
from accel.system.page_locks import Block

Bytes = npt.NDArray[np.uint8]
_MOVES = 4
_TOGETHER = 16  # files that a thread copies at a time
_ALONE = ParallelFor(1, "accel-cuda")


class HostMemory:
    """What one batch takes of an engine's pinned memory.

    Attributes:
        buffer: gets the device's report, and has what is sent behind it. files: has the files, or is None.
    """

    buffer: torch.Tensor
    files: torch.Tensor | None = None

    def __init__(self, pool: PinnedPool, of_files: PinnedPool, parallel: ParallelFor | None = None) -> None:
        """``parallel``: threads that copy files; None: the calling one."""
        self.pool, self._of_files, self._parallel = pool, of_files, parallel

    def gather(self, contents: Sequence[Any]) -> tuple[Bytes, Integers, Integers]:
        """Copy files into pinned memory (see ``requests.Gather``)."""
        sizes = np.array([len(each) for each in contents], np.int64)
        starts, total = places(sizes)
        self.files = self._of_files.take(total)
        memory, places_of = self.files.numpy()[:total], [*zip(contents, starts.tolist(), sizes.tolist(), strict=True)]

        def copy(first: int) -> None:
            for content, start, size in places_of[first : first + _TOGETHER]:
                memory[start : start + size] = np.frombuffer(content, np.uint8)

        (self._parallel or _ALONE).each(range(0, len(contents), _TOGETHER), copy)
        return memory, starts, sizes

    def take(self, report: int, size: int) -> Bytes:
        """Memory for a program, uint8 [size], behind a report of so many bytes."""
        first = begin_of(report)
        self.buffer = self.pool.take(first + size)
        return self.buffer.numpy()[first : first + size]

    def give_back_files(self, mark: object) -> None:
        """Give the memory of files back, unless that was done."""
        if self.files is not None:
            files, self.files = self.files, None
            self._of_files.give_back(files, mark)  # type: ignore[arg-type]


def begin_of(report: int) -> int:
    """The offset in the host memory of what is sent, behind a report of so many bytes."""
    return -(-report // ALIGNED) * ALIGNED


class Execution:
    """One run of finished work: fill in the ``pixels`` of its ``holes``, then ``launch``.

    Attributes:
        holes: the numbers of the images that the host decodes. decoding: of the files (``flagged`` after ``launch``).
        work: what the device does.
    """

    def __init__(
        self, finished: Finished, result: torch.Tensor, device: Device, host: HostMemory, in_place: bool = True
    ) -> None:
        """``result``: the tensor that the launches will write. ``host``: has the program, unless a worker made it.
        ``in_place``: whether the device copies the files from where they are."""
        self.finished, self._device, self._host, self._result, self._begun = finished, device, host, result, False
        said = finished.summary
        self._memory = device.scratch(said.memory)
        first = begin_of(said.report_size)
        begin = first - (said.behind if in_place else 0)  # where the device's memory would begin in the host's
        program = finished[Section.PROGRAM]
        if not hasattr(host, "buffer"):
            host.buffer = host.pool.take(begin + said.sent)
        self._bytes: Bytes = host.buffer.numpy()
        indexing = Indexing(said.indexed, said.misfits, said.wanted, partial(_known, finished))
        accepted = partial(finished.__getitem__, Section.ACCEPTED)
        self.decoding = Decoding((host.pool, host.buffer, None), said.decoded, accepted, indexing)
        calls = np.empty((_MOVES + said.launches + ROOM, 4), np.uint64)
        self.work = Work(self._memory, calls, _MOVES)
        sections = (finished[each] for each in (Section.SUMMARY, Section.LAUNCHES, Section.PIECES))
        where = np.array((in_place, self._memory.data_ptr(), result.data_ptr(), first), np.int64)
        fill_upload(finished.files, *sections, program, finished[Section.FIXUPS], where, self._bytes, calls)
        self._holes = {}
        if said.holes:
            self._holes = {n: begin + said.behind + at for n, at in finished[Section.HOLES].tolist()}

    @property
    def holes(self) -> list[int]:
        return list(self._holes)

    def pixels(self, number: int, size: int) -> Bytes:
        """The host memory for the pixels of an image that the host decodes, uint8[size]."""
        return self._bytes[self._holes[number] : self._holes[number] + size]

    def launch(self) -> None:
        """Queue the copies and launches that compute the result, on torch's current stream of the device."""
        self._begun = True
        self._device.submit(self.work)
        mark = self._device.mark()
        self._host.give_back_files(mark)
        self.decoding.queued(self._memory, mark)

    def abandon(self) -> None:
        """Give the host memory back, after waiting for the device's copies from and to it."""
        mark = self._device.mark() if self._begun else None
        if mark is not None:
            mark.synchronize()
        self._host.give_back_files(None)
        self.decoding.give_back()


def locked(block: Block | None, images: int, device: Device) -> bool:
    """Whether a device can copy the files of so many images from the memory in which they lie: it has locked that."""
    found = block is not None and block.locked(device.torch_device.type, device.lock)
    if found:
        counters.count(counters.IN_PLACE, images)
    return found


def _known(finished: Finished) -> Made:
    return finished[Section.HEADERS], finished[Section.KNOWN].reshape(-1, 5), finished[Section.POINTS].reshape(2, -1)
