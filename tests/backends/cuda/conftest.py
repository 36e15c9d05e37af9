"""What the cuda backend's tests ask for by name."""

from collections.abc import Iterator

import pytest
import torch

from accel.backends.cuda import host


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Memory that nobody has written is not zero."""
    monkeypatch.setattr(host.HostDevice, "pinned", lambda self, size: torch.full((size,), 171, dtype=torch.uint8))
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # torch.empty gives NaN, and the largest integers
    yield
    torch.use_deterministic_algorithms(before)
