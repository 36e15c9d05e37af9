"""Small folders of images, of which batches of any length are drawn in one go."""

from pathlib import Path

import pytest

from accel.hooks.compiled import batch, compositions, single
from tests.support import helpers, inside


@pytest.fixture(autouse=True)
def _of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "FEW", 1)


@pytest.fixture
def from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that come one by one are compiled at once, however often their composition changes."""
    monkeypatch.setattr(single, "FIRST", 0)
    monkeypatch.setattr(compositions, "AGAIN", 0)
    inside.restless_from(monkeypatch, 1000)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helpers.write_image_folder(tmp_path_factory.mktemp("compiled") / "photos", 13)
