"""Hard use: decompression bombs. (Mutated files: test_fuzz.py.)"""

import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader

from tests.support import helpers
from tests.support.damage import sized
from tests.support.helpers import outcome
from tests.support.processes import linux

BASELINE, PROGRESSIVE = helpers.jpeg(64, 48), helpers.jpeg(64, 48, progressive=True)


@pytest.mark.parametrize("limit", [None, 1000, 64 * 48, 64 * 48 - 1, 64 * 24, 64 * 24 - 1, Image.MAX_IMAGE_PIXELS])
@pytest.mark.parametrize("size", [(48, 64), (65_500, 65_500), (65_535, 1), (12_000, 8_000), (14_000, 14_000)])
@pytest.mark.parametrize("data", [BASELINE, PROGRESSIVE], ids=["baseline", "progressive"])
def test_bombs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, size: tuple[int, int], limit: int | None
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    (tmp_path / "class").mkdir()
    path = tmp_path / "class" / "bomb.jpg"
    path.write_bytes(sized(data, *size))
    ways: list[Callable[[], Any]] = [
        lambda: Image.open(path).size,
        lambda: Image.open(BytesIO(path.read_bytes())).size,
    ]
    if size == (48, 64) or (limit is not None and size[0] * size[1] > 2 * limit):  # nothing large is decoded
        ways += [lambda: default_loader(str(path)).size, lambda: ImageFolder(str(tmp_path), np.asarray)[0][0].shape]
    for way in ways:
        found = []
        for backend in ("torchvision", "cpu"):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                found.append(
                    (
                        helpers.run(backend, lambda way=way: outcome(way))[0],
                        [str(each.message) for each in warned if each.category is Image.DecompressionBombWarning],
                    )
                )
        assert found[0] == found[1]


@linux
def test_a_bomb_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "bomb.jpg").write_bytes(sized(BASELINE, 65_500, 65_500))
    (tmp_path / "small.jpg").write_bytes(BASELINE)
    code = """
import sys, accel, torch
from PIL import Image
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
accel.set_image_backend("cpu")
default_loader(sys.argv[2])  # what opens files is compiled
before, refused = peak(), 0
for use in (Image.open, default_loader):
    try:
        use(sys.argv[1])
    except Image.DecompressionBombError:
        refused += 1
Image.MAX_IMAGE_PIXELS = None
image = Image.open(sys.argv[1])
assert image.size == (65500, 65500)
lazy = F.to_tensor(image.convert("RGB").crop((0, 0, 500, 500)).resize((10, 10)))
assert lazy.shape == (3, 10, 10)
print(refused, peak() - before)
"""
    refused, kilobytes = helpers.python(code, str(tmp_path / "bomb.jpg"), str(tmp_path / "small.jpg")).split()
    assert refused == "2"
    assert int(kilobytes) < 30_000
