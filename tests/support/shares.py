"""What compiled calls for many images did, as tests see it."""

from typing import Any

import numpy as np
import pytest

from accel.backends.cpu import passes
from accel.codec import jpeg


def noted(monkeypatch: pytest.MonkeyPatch, shared: type[Any]) -> list[tuple[int, int]]:
    """Of each later call of this class's ``run``: how many images threads share, and how many of them it leaves."""
    found: list[tuple[int, int]] = []
    run = shared.run

    def noting(self: Any, *given: Any) -> list[int]:
        left: list[int] = run(self, *given)
        found.append((len(self), len(left)))
        return left

    monkeypatch.setattr(shared, "run", noting)
    return found


def begin_with_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave this thread hardly any working memory for decoding and the pass, so that a share asks for more."""
    for name, kind in (("ends", np.int64), ("planes", np.uint8)):
        monkeypatch.setattr(jpeg._scratch, name, np.empty(8, kind))
    monkeypatch.setattr(passes.workspace, "memory", np.empty(0, np.uint8))
