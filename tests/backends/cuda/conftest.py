"""What the cuda backend's tests ask for by name."""

import pytest
import torch

from accel.backends.cuda import device, host


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nobody has written is not zero."""
    empty = device.Device.empty
    monkeypatch.setattr(host.HostDevice, "pinned", lambda self, size: torch.full((size,), 171, dtype=torch.uint8))
    monkeypatch.setattr(device.Device, "empty", lambda *arguments: empty(*arguments).fill_(171))
