"""Batches through the cuda backend, on such a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

import accel
from accel.backends.cuda import CudaBackend, CudaOptions, backend
from accel.planning.plan import plan

from .device import DEVICE, PtxDevice
from .pieces import told


def computed(device: PtxDevice, batch: Callable[[], torch.Tensor], decode: str = "host") -> torch.Tensor:
    """What ``batch`` stacks of recorded images. ``decode``: see ``CudaOptions``."""
    with accel.image_backend("cuda", device="cpu", decode=decode):
        late: Any = batch()
    with mock.patch.object(backend.host, "HostDevice", return_value=device):
        running = CudaBackend(CudaOptions(device="cpu", decode=decode))  # type: ignore[arg-type]
        engine = running._engine(DEVICE)
    engine.encoder._agreed = True  # what the tests compare shows it
    if decode == "accel":
        engine.jpeg._agreed = True
    with told(device):
        return running.run_on(plan(late.late.recipes, interleaved=late.late.interleaved), DEVICE)
