"""A folder of small files for trainings that are killed."""

from pathlib import Path

import pytest

from tests.support import helpers


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-six files in two classes."""
    folder = tmp_path_factory.mktemp("resume")
    for number in range(26):
        path = folder / f"class{number % 2}" / f"{number:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(helpers.jpeg(60 + number, 50 + number % 5, seed=number))
    return folder
