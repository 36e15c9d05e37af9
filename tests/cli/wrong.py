"""A backend that is not exact, for tests of what commands say of it."""

from typing import Any

import pytest
import torch


def make_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the cpu backend differ from torchvision, by one value of each batch."""
    from accel.backends.cpu import CpuBackend

    right = CpuBackend.run_all

    def run_all(self: CpuBackend, *args: Any, **kwargs: Any) -> list[Any]:
        results = right(self, *args, **kwargs)
        for result in results:
            if isinstance(result, torch.Tensor):
                result[-1, 0, 5, 7] += 0.001
        return results

    monkeypatch.setattr(CpuBackend, "run_all", run_all)
