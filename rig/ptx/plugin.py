"""``pytest -p rig.ptx.plugin <tests of the cuda backend>``: what they run on the host, the interpreter runs."""

from collections.abc import Iterator

import pytest

from rig.ptx.device import PtxDevice, installed


@pytest.fixture(autouse=True)
def on_the_interpreter() -> Iterator[None]:
    with installed(PtxDevice()):
        yield
