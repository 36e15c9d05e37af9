"""Executing a schedule on a device: memory, the upload, the launches. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.descriptors import Region, bind, offset_of
from accel.backends.cuda.device import Device
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.backends.cuda.schedule import Launch, Schedule, Sent

Bytes = npt.NDArray[np.uint8]


class Execution:
    """One run of a schedule: fill its host memory (``pixels``, ``sent``), then ``upload``, then ``launch``.

    The last two queue on torch's current stream of the device, which must be entered.
    """

    def __init__(self, schedule: Schedule, device: Device, pool: PinnedPool, result: torch.Tensor) -> None:
        """``result``: the tensor that the launches will write."""
        self._schedule, self._device, self._pool, self._result = schedule, device, pool, result
        self._placed = placed(schedule)
        self._buffer = pool.take(schedule.upload.size)
        self._given_back = False
        self._host: Bytes = self._buffer.numpy()

    @property
    def launches(self) -> list[str]:
        """The kernels that ``launch`` launches, in order."""
        return [launch.kernel for launch, *_ in self._placed]

    def pixels(self, number: int, size: int) -> Bytes:
        """The host memory for the pixels of a decode, uint8[size]."""
        offset = offset_of(self._schedule.pixels[number])
        return self._host[offset : offset + size]

    def sent(self) -> Sequence[Callable[[], None]]:
        """Tasks, in any order, that fill in everything else that is sent."""
        return [partial(filled, self._host, each) for each in self._schedule.sent]

    def upload(self) -> None:
        """Queue the copy of the host memory to the device."""
        size = self._schedule.upload.size
        self._upload = self._device.scratch(size)
        self._scratch = self._device.scratch(self._schedule.scratch.size)
        bases = {
            Region.UPLOAD: self._upload.data_ptr(),
            Region.SCRATCH: self._scratch.data_ptr(),
            Region.RESULT: self._result.data_ptr(),
        }
        for launch, items, owners in self._placed:
            self._write(items, bind(launch.items(), bases))
            self._write(owners, launch.owners())
        self._upload[:size].copy_(self._buffer[:size], non_blocking=True)
        mark = self._device.mark()
        self._given_back = True  # set before, so that after an interrupt it is not given back twice
        self._pool.give_back(self._buffer, mark)

    def launch(self) -> None:
        """Queue the launches that compute the result; may be called again."""
        base = self._upload.data_ptr()
        for launch, items, owners in self._placed:
            self._device.launch(launch.kernel, launch.total, base + items, base + owners)

    def abandon(self) -> None:
        """Give the host memory back, if it was not sent."""
        if not self._given_back:
            self._pool.give_back(self._buffer, None)

    def _write(self, offset: int, array: npt.NDArray[Any]) -> None:
        flat = array.view(np.uint8)
        self._host[offset : offset + len(flat)] = flat


def placed(schedule: Schedule) -> list[tuple[Launch, int, int]]:
    """The launches of a schedule in order, each with the offsets of its descriptors and their owners in the upload,
    where they are given room at the end. Call it only once."""
    upload, found = schedule.upload, []
    for launch in (launch for level in schedule.levels for launch in level.values()):
        items = offset_of(upload.take(launch.count * launch.dtype.itemsize))
        found.append((launch, items, offset_of(upload.take(launch.total * 4))))
    return found


def filled(upload: Bytes, each: Sent) -> None:
    """Copy the content of something that is sent into the upload."""
    offset = offset_of(each.place)
    for array in each.content():
        flat = array.reshape(-1).view(np.uint8)
        upload[offset : offset + len(flat)] = flat
        offset += len(flat)
