"""``pytest -p rig.ptx.plugin <tests of the cuda backend>``: the interpreter runs what they run on the host."""

from collections.abc import Iterator

import pytest

from rig.ptx.device import PtxDevice, installed


@pytest.fixture(autouse=True)
def on_the_interpreter() -> Iterator[None]:
    with installed(PtxDevice()):
        yield
