"""A tree of files of all kinds, and the pack of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import helpers, packs
from tests.support.packs import forget


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Classes whose names sort otherwise than as numbers, nested folders, odd names, and all types of pictures."""
    root = tmp_path / "tree"
    number = 0
    for folder in ("b", "b/deeper", "b/deeper/still", "a 1", "a 10", "a 2", "c"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name in ("x.jpg", "X.JPG", "a b.jpeg", "y.tar.jpg"):
            content = helpers.jpeg(60 + 3 * number, 50 + 2 * number, "L" if number % 7 == 6 else "RGB", seed=number)
            (root / folder / name).write_bytes(content)
            number += 1
    helpers.picture(40, 30).save(root / "b" / "picture.png")
    helpers.picture(40, 30, seed=1).save(root / "c" / "png in truth.jpg", format="PNG")
    helpers.picture(40, 30, "CMYK", seed=2).save(root / "c" / "cmyk.jpg")
    helpers.picture(40, 30, seed=3).save(root / "c" / "turned.jpg", exif=helpers.exif())
    (root / "b" / "notes.txt").write_text("no picture")
    (root / "c" / "\N{LATIN SMALL LETTER E WITH ACUTE}.jpg").write_bytes(helpers.jpeg(33, 44, seed=50))
    return root


@pytest.fixture
def pack(tree: Path, tmp_path: Path) -> Path:
    return packs.made(tree, tmp_path / "pack")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Shards stay open as long as a process lives, and this one sees hundreds."""
    yield
    forget()
