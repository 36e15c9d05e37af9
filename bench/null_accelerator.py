"""An accelerator that takes no time, to measure the host's part of the ``cuda`` backend.

Workers send it finished work as for a GPU; it binds each batch's addresses and queues it as on a GPU, but the driver's
functions are replaced by one that does nothing. Files are sent from where workers left them, as if a driver had locked
that memory, so the host does not copy them. It shows how fast the host can feed a device that decodes and transforms by
itself, and no more. It is an ordinary backend, found by an entry point.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from unittest import mock

import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

import accel
from accel import backend
from accel.backends.cuda import compile
from accel.backends.cuda.backend import CudaBackend, CudaOptions, _Engine
from accel.backends.cuda.decoder import Decoder
from accel.backends.cuda.device import ROOM, Device, Work, queued
from accel.backends.cuda.driver import Call
from accel.cli.harness import TensorBatch
from accel.lazy.tensor_base import LazyTensorBase
from accel.runtime import compute
from bench.contestants.contestant import Epoch
from bench.contestants.scripts import TorchvisionV1
from bench.pipelines import Job

NAME = "null"
_META = torch.device("meta")


class _NullDevice(Device):
    """A device without memory, which discards all that is sent to it."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype, device=_META)

    def submit(self, work: Work) -> None:
        done, _ = queued(work, _HANDLES, _FUNCTIONS, 0)
        assert done == len(work.calls) - ROOM
        call, target, _, size = work.calls[work.moves - 1].tolist()
        assert call == Call.TO_HOST
        ctypes.memset(target, 0, size)  # the kernels' report: no picture was declined

    def free_memory(self) -> int:
        return 1 << 40


_HANDLES = np.zeros(len(compile.KERNELS), np.uint64)
_FUNCTIONS = np.full(len(Call), ctypes.cast(ctypes.CDLL(None).pthread_equal, ctypes.c_void_p).value, np.uint64)
"""The replacement of the driver's functions: it compares two different numbers, and so returns 0."""


class _NullDecoder(Decoder):
    """A decoder that reports every file as decoded."""

    def agrees(self) -> bool:
        return True


class NullAccelerator(CudaBackend):
    """The ``cuda`` backend on a device that computes nothing."""

    devices = ("meta",)

    @classmethod
    def unavailable(cls, options: CudaOptions | None = None) -> str | None:
        return None

    def _engine(self, device: torch.device) -> _Engine:
        found = self._engines.get(device)
        if found is None:
            found = self._engines[device] = _Engine(torch.device("cpu"), _NullDevice(_META))
            found.jpeg = _NullDecoder(found.device)
        return found


@contextmanager
def installed() -> Iterator[None]:
    """A context in which ``accel.image_backend("null")`` is known."""
    entry = EntryPoint(NAME, f"{NullAccelerator.__module__}:{NullAccelerator.__name__}", backend.GROUP)
    with mock.patch.object(backend, "entry_points", lambda group: (*entry_points(group=group), entry)):
        yield


class Recipes(TorchvisionV1):
    """accel's host part: images are recorded and planned in workers, and sent to a device from the main process.

    Args:
        then: "sent", or instead "computed" on the host, for the check, or "kept", to measure their memory.
    """

    key = "accel-recipes"
    title = "accel, host part for an accelerator"
    settings = (
        "torchvision v1's script; batches of recipes, sent to a device that does nothing: decode and transforms are its"
    )

    def __init__(self, then: Literal["sent", "computed", "kept"] = "sent") -> None:
        self._then = then

    @contextmanager
    def in_force(self, job: Job) -> Iterator[None]:
        with installed(), accel.image_backend(NAME, cache=None):  # undecoded files have no indexes
            yield

    def finish(self, batch: TensorBatch) -> TensorBatch:
        if not isinstance(batch, LazyTensorBase):
            raise TypeError(f"a batch is no lazy tensor but a {type(batch).__name__}")
        if self._then == "computed":
            return batch.materialize()
        if self._then == "kept":
            return batch
        return compute.tensors_on(_META, batch.lazy.recipes, interleaved=batch.lazy.layout.interleaved)


class Folder(TorchvisionV1):
    """torchvision's own dataset of files, for which accel draws whole batches at once, in place of the script's."""

    key = "folder"
    title = "torchvision v1, PIL, ImageFolder"

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        with TemporaryDirectory() as folder:
            Path(folder, "photos").mkdir()
            for number, file in enumerate(job.images.files):
                Path(folder, "photos", f"{number:06}-{Path(file).name}").symlink_to(Path(file).resolve())
            loader = DataLoader(
                ImageFolder(folder, job.pipeline.v1()),
                job.batch_size,
                sampler=job.order,
                num_workers=job.workers,
                persistent_workers=job.workers > 0,
                multiprocessing_context="fork" if job.workers else None,
            )

            def epoch(seed: int) -> Iterator[TensorBatch]:
                torch.manual_seed(seed)
                yield from (self.finish(images) for images, _ in loader)

            yield epoch
            if job.workers and loader._iterator is not None:
                loader._iterator._shutdown_workers()  # type: ignore[attr-defined]


class FolderRecipes(Recipes, Folder):
    """accel's host part with ``Folder``."""

    key = "accel-recipes-folder"
    title = "accel, host part for an accelerator, ImageFolder"
