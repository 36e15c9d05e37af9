"""A pack that an earlier version wrote is read; one kept file (``format_1.zip``) for each format."""

import zipfile
from pathlib import Path

import pytest
import torch
from torchvision.datasets import ImageFolder

import accel
from accel.codec.files import pack_index
from accel.packs.unpacking import unpack
from accel.packs.writing import check, pack
from tests.support.cached import TRAIN
from tests.support.processes import linux

pytestmark = linux

FORMATS = [b"1"]


def drawn(dataset: ImageFolder) -> list[tuple[torch.Tensor, int]]:
    torch.manual_seed(0)
    return [(torch.as_tensor(image), label) for image, label in dataset]


def test_the_format_of_today_is_kept() -> None:
    assert FORMATS[-1] == pack_index.FORMAT, "keep a pack of the new format, too"


@pytest.mark.parametrize("version", FORMATS)
def test_a_pack_of_a_former_version(version: bytes, tmp_path: Path) -> None:
    place, tree = tmp_path / "pack", tmp_path / "tree"
    with zipfile.ZipFile(Path(__file__).with_name(f"format_{version.decode()}.zip")) as kept:
        kept.extractall(place)
    assert check(str(place), workers=1) == []
    unpack(str(place), str(tree))
    assert [path.removeprefix(f"{tree}/") for path, _ in ImageFolder(tree).samples] == [
        *("a/x.jpg", "a/deeper/y.JPEG", "b 1/z.png", "b 1/\N{LATIN SMALL LETTER E WITH ACUTE}.jpg"),
    ]
    expected = drawn(ImageFolder(tree, TRAIN))
    with accel.image_backend("cpu"):
        found = drawn(ImageFolder(place, TRAIN))
    for (image, label), (its_image, its_label) in zip(found, expected, strict=True):
        assert torch.equal(image, its_image)
        assert label == its_label
    if version == FORMATS[-1]:  # what is written does not change without another format
        pack(str(tree), str(tmp_path / "again"), workers=1)
        for shard in place.glob("shard-*"):
            assert (tmp_path / "again" / shard.name).read_bytes() == shard.read_bytes()
