"""A backend that is not exact, for tests of what commands say of it."""

from typing import Any

import pytest
import torch

from accel.cli import verify


def no_longer_than(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """``accel verify`` tries more than what it must for so long; by 0, it stops when each op was tried on 20 images."""
    monkeypatch.setattr(verify, "_SECONDS", seconds)


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
