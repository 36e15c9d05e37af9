"""A device without a GPU, on which steps are captured and replayed (``rig.tape``)."""

from collections.abc import Iterator

import pytest

from rig.tape import TapeDevice, stand_in


@pytest.fixture
def device() -> Iterator[TapeDevice]:
    with stand_in() as made:
        yield made
