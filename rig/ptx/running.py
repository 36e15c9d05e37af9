"""Batches through the cuda backend, on such a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch

import accel
from accel import testing
from accel.backends.cuda import CudaBackend, backend

from .device import PtxDevice
from .pieces import told


@contextmanager
def installed(device: PtxDevice) -> Iterator[None]:
    """While this lasts, ``device="cpu"`` of the cuda backend means this one.

    Its decoder and encoder are not tried first: that their results are right is what the tests look at.
    """
    with mock.patch.object(backend.host, "HostDevice", return_value=device):
        engine = backend._Engine(torch.device("cpu"))
    engine.jpeg._agreed = engine.encoder._agreed = True
    with mock.patch.object(CudaBackend, "_engine", return_value=engine), told(device):
        yield


def computed(device: PtxDevice, batch: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What ``batch`` records, computed by the kernels; the host decodes."""
    with installed(device), accel.image_backend("cuda", device="cpu", decode="host"):
        found: torch.Tensor = testing.computed(batch())
    return found
