"""What compiled calls for many images did, as tests see it; and a store of stream indexes for one test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from accel.backends.cpu import passes, regions
from accel.backends.cpu.regions import Regions
from accel.backends.cpu.shares import Share
from accel.codec import store
from accel.system import memory
from tests.support import inside


def noted(monkeypatch: pytest.MonkeyPatch, kind: type[Regions]) -> list[tuple[int, int]]:
    """Of each later run of a share of such regions: how many images threads share, and how many of them it leaves."""
    found: list[tuple[int, int]] = []
    run = Share.run

    def noting(self: Share, *given: Any) -> list[int]:
        left = run(self, *given)
        if isinstance(self.regions, kind):
            found.append((len(self.regions.positions), len(left)))
        return left

    monkeypatch.setattr(Share, "run", noting)
    return found


def begin_with_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave this thread hardly any working memory for decoding and the pass, so that a share asks for more."""
    for name, kind in (("ends", np.int64), ("planes", np.uint8)):
        monkeypatch.setattr(inside.scratch(), name, np.empty(8, kind))
    monkeypatch.setattr(passes.workspace, "memory", np.empty(0, np.uint8))


IN_BANDS, MOST = regions._limits.tolist()
"""Regions of more bytes than the first are decoded in bands."""


def bands_from(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Decode regions of more than ``size`` bytes in bands where that is possible."""
    monkeypatch.setattr(regions, "_limits", np.array((size, MOST)))


def new_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[store.Store]:
    """A new store, for files however young, until the generator goes on."""
    inside.no_store(monkeypatch, tried=True)
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    file = memory.anonymous_file(1 << 24)
    store.share(file, 1 << 24)
    made = store.current()
    assert made is not None
    yield made
    os.close(file)
