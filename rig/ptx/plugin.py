"""``pytest -p ptx.plugin <tests of the cuda backend>``: what they run on the host, the interpreter runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .device import PtxDevice
from .running import installed


@pytest.fixture(autouse=True)
def on_the_interpreter() -> Iterator[None]:
    with installed(PtxDevice()):
        yield
