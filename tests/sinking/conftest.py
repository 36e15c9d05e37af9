"""A device without a GPU, on which steps are captured and replayed (``rig.tape``)."""

from collections.abc import Iterator

import pytest

from accel.runtime import streams
from accel.sinking import graph, trace
from rig.tape import TapeDevice
from tests.support import inside


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[TapeDevice]:
    made = TapeDevice()
    inside.streams_of(monkeypatch, made)
    monkeypatch.setattr(streams, "transferred", made.transferred)
    monkeypatch.setattr("torch.Tensor.record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(graph, "Graph", made.graph)
    monkeypatch.setattr(trace, "device_generator", lambda device: made.random)
    with made.late():
        yield made
