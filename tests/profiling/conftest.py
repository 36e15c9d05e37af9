"""Images for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.profiling.measure import EACH
from tests.support import helpers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helpers.write_image_folder(tmp_path_factory.mktemp("images"), EACH)
