"""Files that cannot be read, and whatever else fails, in batches drawn in one go."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.codec.files import reader
from accel.hooks import tv_files
from tests.hooks.compiled.support import MEAN, PIPELINES, STD, TOGETHER, ways
from tests.support import helpers, inside


def _png(path: Path) -> None:
    helpers.picture(40, 50).save(path, "PNG")


BROKEN: dict[str, Callable[[Path], Any]] = {
    "gone": Path.unlink,
    "no picture": lambda path: path.write_bytes(b"nothing"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:300]),
    "another format": _png,
    "too small": lambda path: helpers.picture(8, 50).save(path, "JPEG"),
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", BROKEN)
def test_errors_are_torchvisions_and_leave_its_states(name: str, workers: int, tmp_path: Path) -> None:
    place = helpers.write_image_folder(tmp_path / "photos", 9)
    dataset = ImageFolder(str(place), T.Compose([T.RandomHorizontalFlip(), T.RandomCrop(30), T.ToTensor()]))
    BROKEN[name](place / "cat" / "002.jpg")

    def run() -> list[Any]:
        found: list[Any] = []
        batches = iter(DataLoader(dataset, 4, num_workers=workers))
        for _ in range(3):
            result = helpers.attempt(lambda: next(batches))
            failed = isinstance(result[0], type)
            found += [result[0] if failed else result, helpers.random_states() if not workers else ()]
        if workers:
            batches._shutdown_workers()  # type: ignore[attr-defined]  # torch waits 5 s for those it finds as garbage
        return found

    expected, _ = helpers.run("torchvision", run)
    actual, _ = helpers.run("cpu", run)
    if name == "cut":  # decoding is later, by design, and fails later
        actual, expected = actual[2:], expected[2:]
        actual, expected = actual[::2], expected[::2]
    helpers.assert_same(actual, expected)


def test_notes_name_the_sample_as_before(root: Path, tmp_path: Path) -> None:
    place = helpers.write_image_folder(tmp_path / "photos", 6, {3: helpers.undecodable()})
    dataset = ImageFolder(str(place), PIPELINES["train"]())
    texts = []
    for target_transform in (None, lambda n: n):  # in one go, and one by one
        dataset.target_transform = target_transform
        with accel.image_backend("cpu"), pytest.raises(accel.DecodeError) as caught:
            _ = [images + 0 for images, _ in DataLoader(dataset, 6)]
        texts.append((str(caught.value), getattr(caught.value, "__notes__", [])))
        with accel.image_backend("cpu"), pytest.raises(accel.DecodeError) as caught:
            helpers.batches(DataLoader(dataset, 6, num_workers=1))
        texts.append((str(caught.value).rpartition("accel.errors")[2], []))
    assert texts[:2] == texts[2:]
    assert "dataset index 3" in texts[0][0]


def test_replaced_files(tmp_path: Path) -> None:
    place = helpers.write_image_folder(tmp_path / "photos", 6, {3: b"no picture", 4: helpers.undecodable()})
    dataset = ImageFolder(str(place), PIPELINES["eval"]())
    with accel.image_backend("cpu", on_error="replace"):
        images, _ = next(iter(DataLoader(dataset, 6)))
        black = (torch.zeros(3, 1, 1) - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
        assert [number for number in range(6) if torch.equal(images[number], black.expand(3, 32, 32))] == [3, 4]


def test_files_that_were_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = helpers.write_image_folder(tmp_path / "photos", 8)
    _png(place / "dog" / "006.jpg")
    dataset = ImageFolder(str(place), PIPELINES["train"]())
    read, one, together = [], reader.read, reader.read_to
    monkeypatch.setattr(reader, "read", lambda path: read.append(path) or one(path))
    monkeypatch.setattr(reader, "read_to", lambda paths, *more: read.extend(paths) or together(paths, *more))
    inside.files_of_unknown_size(monkeypatch, 1e5)
    with accel.image_backend("cpu"):
        _ = [*DataLoader(dataset, 8), *DataLoader(dataset, 8)]
    assert all(read.count(path) == (4 if "006" in path else 2) for path, _ in dataset.samples)
    assert tv_files.ahead.sources is None


def test_measuring_changes_nothing_of_how_batches_are_made(root: Path) -> None:
    before, recorded = accel.stats()["ways"], []
    loader = DataLoader(ImageFolder(str(root), PIPELINES["train"]()), 13)
    with accel.image_backend("cpu"):
        for epochs in (1, 4):
            with accel.profile(show=False) as report:
                _ = [images.sum() for _ in range(epochs) for images, _ in loader]
            recorded.append(report.stages["record"]["count"])
            assert report.stages["read"]["count"] == 4 * epochs  # one for a batch, and Pillow's of 3 progressive files
    assert ways(before) == {TOGETHER: 13 * 5}
    assert recorded[1] - recorded[0] == 3  # one for a batch
