"""A store of stream indexes for one test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from accel.codec import store, stream_index
from accel.system import memory


def new_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[store.Store]:
    """A new store, for files however young, until the generator goes on."""
    for name in ("_store", "_file"):
        monkeypatch.setattr(store, name, None)
    monkeypatch.setattr(store, "_tried", True)
    monkeypatch.setattr(stream_index, "_full", False)
    monkeypatch.setattr(memory, "SETTLED", 0.0)
    file = memory.anonymous_file(1 << 24)
    store.share(file, 1 << 24)
    made = store.current()
    assert made is not None
    yield made
    os.close(file)
