"""Errors of damaged files: torchvision's own types and texts, at once where it can be known, and notes where from."""

from pathlib import Path

import pytest
import torch
from torchvision import io

import accel
from tests.support import damage, helpers
from tests.support.backends import Backend
from tests.support.damage import KINDS, READERS, READINGS, failure

pytestmark = [
    pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Corrupt EXIF data:UserWarning"),  # Pillow's, of a TIFF file
]

KNOWN_LATER = ("no-tables", "marker-inside")  # what is behind the header is not looked at


@pytest.mark.parametrize("kind", READINGS)
def test_errors_are_torchvisions(tmp_path: Path, backend: Backend, kind: str) -> None:
    path = tmp_path / f"{kind}.img"
    path.write_bytes(KINDS[kind])
    plain = [damage.PILLOW["open"] if reader == "functional" else READERS[reader] for reader in READINGS[kind]]
    errors = [failure(read, path)[0] for read in plain]
    with backend.chosen():
        failures = [failure(READERS[reader], path) for reader in READINGS[kind]]
    for reader, expected, (found, at_once) in zip(READINGS[kind], errors, failures, strict=True):
        assert expected is not None
        assert isinstance(found, type(expected)), reader
        assert str(expected) in str(found), reader
        if kind not in KNOWN_LATER:
            assert at_once, reader
            assert type(found) is type(expected), reader
            assert str(found) == str(expected), reader


@pytest.mark.parametrize("kind", KNOWN_LATER)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_torchvision_io_finds_later_is_a_runtime_error_too(tmp_path: Path, kind: str, workers: int) -> None:
    paths = []
    for number in range(4):
        paths.append(tmp_path / f"{number}.jpg")
        paths[-1].write_bytes(KINDS[kind] if number == 2 else damage.GOOD)
    with pytest.raises(RuntimeError) as expected:
        io.read_image(str(paths[2]))
    loader = torch.utils.data.DataLoader([str(path) for path in paths], 4, num_workers=workers, collate_fn=read_all)
    with accel.image_backend("cpu"), pytest.raises(RuntimeError) as raised:
        sum(batch.sum() for batch in helpers.batches(loader))
    assert isinstance(raised.value, accel.DecodeError)
    assert str(expected.value) in str(raised.value)
    assert str(paths[2]) in str(raised.value)
    assert "image 2 of a batch of 4" in str(raised.value)


def read_all(paths: list[str]) -> torch.Tensor:
    return torch.stack([io.read_image(path) for path in paths])


def test_of_pillows_files_it_is_none(tmp_path: Path) -> None:
    path = tmp_path / "file.jpg"
    path.write_bytes(KINDS["marker-inside"])
    with accel.image_backend("cpu"):
        found, _ = failure(READERS["loader"], path)
    assert isinstance(found, OSError)
    assert not isinstance(found, RuntimeError)
