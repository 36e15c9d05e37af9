"""Other people's libraries with the switch on: one file each, skipped where the library is not installed.

Each file does what the library's documentation does, with accel's two lines in front of it, and proves with
``tests.support.ecosystem.proven`` that the tensors are torchvision's, and that accel made them. docs/ecosystem.md has
the table of libraries and versions; ``pip install -e ".[ecosystem]"`` brings those that install quickly.
"""

import pytest
from PIL import Image


@pytest.fixture(scope="session")
def colour_paths(paths: list[str]) -> list[str]:
    """The files that need no conversion: writers keep the bytes only of what ``Image.open`` itself gave."""
    return [path for path in paths if Image.open(path).mode == "RGB"]
