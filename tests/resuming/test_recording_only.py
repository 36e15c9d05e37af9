"""Epochs that are recorded and not computed: ``accel.skip`` and ``accel.digest``, and the state digest."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

import accel
from accel.cli.command_line import main
from bench.resume import cases
from bench.resume.cases import Case
from tests.support import helpers

pytestmark = pytest.mark.filterwarnings("ignore")  # of loaders with more workers than cores


def behind(case: Case, root: Path, count: int, skip: bool) -> list[Any]:
    cases.seeded(4)
    loader = cases.loader(case, root)
    if skip:
        batches = accel.skip(loader, count)
    else:
        batches = iter(loader)
        for _ in range(count):
            next(batches, None)
    return [([part.clone() for part in cases.tensors(batch)], cases.states()) for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", cases.DATASETS)
def test_skipping_equals_throwing_away(root: Path, workers: int, dataset: str) -> None:
    case = Case(dataset=dataset, sampler="sequential" if dataset == "iterable" else "shuffle", workers=workers)
    for count in (0, 1, 5, 30):
        expected = behind(case, root, count, skip=False)
        with accel.image_backend("cpu"):
            before = accel.stats()["images"]
            helpers.assert_same(behind(case, root, count, skip=True), expected)
            if dataset != "iterable":
                assert accel.stats()["images"] - before == max(26 - 4 * count, 0)
        helpers.assert_same(behind(case, root, count, skip=True), expected)  # the switch is off: computed, thrown away


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epochs_digest(root: Path, workers: int) -> None:
    """It leaves everything as it is, and changes with the draws, the files and the transforms."""
    accel.set_image_backend("cpu")
    case = Case(dataset="own", planted="numpy", workers=workers, persistent=workers > 0)
    loader = cases.loader(case, root)
    cases.seeded(1)
    before = cases.states()
    digest = accel.digest(loader)
    helpers.assert_same(cases.states(), before)
    assert accel.digest(loader) == digest == accel.digest(cases.loader(case, root))
    cases.seeded(2)
    assert accel.digest(loader) != digest
    images = accel.stats()["images"]
    accel.digest(cases.loader(Case(workers=workers), root))
    assert accel.stats()["images"] == images


def digests(dataset: Any, workers: int = 0) -> tuple[str, str]:
    """The content digest of an epoch, and the state digest of a batch."""
    cases.seeded(1)
    loader: Any = DataLoader(dataset, 4, shuffle=True, num_workers=workers)
    digest = accel.digest(loader)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    return digest, loader.state_dict()["workers"][0]["record"]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_for_all_ways_to_record(root: Path, tmp_path: Path, workers: int) -> None:
    """Compiled or not, cache on or off, files or packs."""
    accel.set_image_backend("cpu")
    expected = digests(ImageFolder(str(root), cases.TRAIN), workers)

    class Plain(ImageFolder):  # type: ignore[misc]
        def __getitem__(self, number: int) -> Any:
            path, target = self.samples[number]
            image = self.loader(path)
            for transform in cases.TRAIN.transforms:
                image = transform(image)
            return image, target

    assert digests(Plain(str(root)), workers) == expected
    for _ in range(2):
        accel.set_image_backend("cpu", cache=f"{tmp_path / 'cache'}:64MB")
        assert digests(ImageFolder(str(root), cases.TRAIN), workers) == expected
        list(DataLoader(ImageFolder(str(root), cases.TRAIN), 4))
    accel.set_image_backend("cpu")
    assert main(["pack", str(root), str(tmp_path / "pack")]) == 0
    assert digests(ImageFolder(str(tmp_path / "pack"), cases.TRAIN), workers) == expected


def test_one_changed_byte(root: Path, tmp_path: Path) -> None:
    """Changes the content digest, and not the state digest, which is of sizes only."""
    accel.set_image_backend("cpu")
    for path in root.rglob("*.jpg"):
        copy = tmp_path / path.relative_to(root)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    expected = digests(ImageFolder(str(root), cases.TRAIN))
    assert digests(ImageFolder(str(tmp_path), cases.TRAIN)) == expected
    data = bytearray(copy.read_bytes())
    data[-40] ^= 1
    copy.write_bytes(data)
    content, state = digests(ImageFolder(str(tmp_path), cases.TRAIN))
    assert (content != expected[0], state) == (True, expected[1])


def test_without_a_backend() -> None:
    with pytest.raises(RuntimeError, match="set_image_backend"):
        accel.digest(DataLoader([1]))  # type: ignore[arg-type]


def test_the_command(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for workers in ("0", "0", "1"):
        arguments = ["--data", str(root), "--digest", "--workers", workers, "--json", str(tmp_path / "digest.json")]
        assert main(["compare", *arguments]) == 0
        found.append(json.loads((tmp_path / "digest.json").read_text())["digest"])
        assert capsys.readouterr().out.startswith(f"{found[-1]}  train pipeline, 26 images, {workers} workers")
    assert found[0] == found[1] != found[2]


class Nested(torch.utils.data.Dataset[Any]):
    """Each of its samples is made by a loader of its own."""

    def __init__(self, root: Path, skips: bool) -> None:
        self.inner, self.skips = ImageFolder(str(root), cases.TRAIN), skips

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:
        loader: Any = DataLoader(self.inner, 4, shuffle=True)
        batches = accel.skip(loader, 1) if self.skips else iter(loader)
        return next(batches)[0].sum()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("skips", [False, True])
def test_a_loader_inside_of_the_dataset(root: Path, workers: int, skips: bool) -> None:
    """It makes its batches as always while the outer one is digested or skipped."""
    accel.set_image_backend("cpu")
    loader: Any = DataLoader(Nested(root, skips), 2, num_workers=workers)
    cases.seeded(1)
    digest = accel.digest(loader)
    expected = [sums.clone() for sums in loader]
    cases.seeded(1)
    assert accel.digest(loader) == digest
    (found,) = [sums.clone() for sums in accel.skip(loader, 1)]
    assert torch.equal(found, expected[1])
