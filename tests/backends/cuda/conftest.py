"""What the cuda backend's tests ask for by name."""

from typing import Any

import pytest
import torch

from accel.backends.cuda import device, host


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nobody has written is not zero."""
    empty = device.Device.empty
    monkeypatch.setattr(host.HostDevice, "pinned", lambda self, size: torch.full((size,), 171, dtype=torch.uint8))
    monkeypatch.setattr(device.Device, "empty", lambda *arguments: empty(*arguments).fill_(171))


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The kernels that are launched on the host, in order, and on how many blocks."""
    found: list[tuple[str, int]] = []
    launch = host.HostDevice.launch

    def noted(self: Any, kernel: str, blocks: int, *rest: int) -> None:
        found.append((kernel, blocks))
        launch(self, kernel, blocks, *rest)

    monkeypatch.setattr(host.HostDevice, "launch", noted)
    return found
