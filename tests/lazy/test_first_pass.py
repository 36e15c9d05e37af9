"""Images of one batch that begin alike and go on in different ways: their first pass is run for all together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.transforms import v2

import accel
from accel.runtime import first_pass
from tests.support import helpers

SIZES = [(64, 48), (40, 90), (33, 35), (200, 150), (64, 48), (128, 61), (50, 50), (31, 47)]
SHIFTS = v2.RandomAffine(20, (0.1, 0.2), (0.8, 1.2))


def colours(*first: Any) -> Any:
    return v1.Compose([*first, v1.ColorJitter(0.4, 0.4, 0.4, 0.1), v1.ToTensor(), v1.Normalize([0.5], [0.25])])


def colours_before(*last: Any) -> Any:
    return v1.Compose([v1.RandomHorizontalFlip(1.0), v1.ColorJitter(0.4, 0, 0, 0.1), *last, v1.ToTensor()])


INVERTED = [v1.RandomInvert(0.5), v1.RandomPosterize(4, 0.5)]
PIPELINES: dict[str, Any] = {
    "crop and flip": colours(v1.RandomResizedCrop(32), v1.RandomHorizontalFlip()),
    "resize and crop": colours(v1.Resize(32), v1.CenterCrop(24)),
    "pad and crop": colours(v1.Resize((40, 40)), v1.RandomCrop(40, 4, fill=7)),
    "crop beyond the image": colours(v1.CenterCrop(70)),
    "no resize": colours(v1.RandomCrop(30), v1.RandomVerticalFlip()),
    "two resizes": colours(v1.Resize(50), v1.RandomResizedCrop(32)),
    "policies": v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.RandAugment(), v1.ToTensor()]),
    "tensors": v2.Compose([v2.ToImage(), v2.RandomResizedCrop(32), v2.RandomPosterize(3), v2.RandomSolarize(99.0)]),
    "kernels on tensors": v2.Compose([v2.ToImage(), v2.RandomResizedCrop(32), v2.RandomPhotometricDistort(), SHIFTS]),
    "some warped": v2.Compose([v2.Resize((32, 32)), v2.RandomApply([SHIFTS]), v2.PILToTensor()]),
    "cropped later": v1.Compose(
        [v1.RandomHorizontalFlip(1.0), v1.RandomOrder(INVERTED), v1.RandomCrop(24), v1.ToTensor()]
    ),
    "resized later": colours_before(v1.RandomResizedCrop(24)),
    "erased": v2.Compose([v2.RandomResizedCrop(32), v2.TrivialAugmentWide(), v2.ToImage(), v2.RandomErasing()]),
}
BEGIN_APART = {"two resizes", "kernels on tensors", "cropped later", "resized later"}
MAY_BEGIN_APART = {"crop beyond the image", *BEGIN_APART}


class Photos(torch.utils.data.Dataset[Any]):
    """Files, each opened anew; ``transform`` gets an RGB image."""

    def __init__(self, folder: Path, transform: Callable[[Any], Any], *, twice: bool = False) -> None:
        self.paths, self.transform, self.twice = sorted(folder.iterdir()), transform, twice

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index]).convert("RGB")
        return torch.stack([self.transform(image) for _ in range(2)]) if self.twice else self.transform(image)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, (width, height) in enumerate(SIZES):
        data = helpers.jpeg(width, height, "L" if number == 3 else "RGB", seed=number, progressive=number == 5)
        (tmp_path / f"{number}.jpg").write_bytes(data)
    return tmp_path


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of images of each first pass that was run for several."""
    found, original = list[int](), first_pass.together

    def together(recipes: Any, backend: Any, run: Any) -> Any:
        def counted(selection: Any, plans: Any) -> Any:
            found.append(len(recipes))
            return run(selection, plans)

        return original(recipes, backend, counted)

    monkeypatch.setattr(first_pass, "together", together)
    return found


@pytest.mark.parametrize("name", PIPELINES)
def test_batches(folder: Path, begun: list[int], name: str) -> None:
    for seed in range(3):
        helpers.assert_equal_runs(lambda: list(DataLoader(Photos(folder, PIPELINES[name]), batch_size=8)), seed)
    assert name in MAY_BEGIN_APART or begun == [8] * 3
    assert name not in BEGIN_APART or not begun, "more would be computed than is shown"


def test_of_a_few_images_each_is_planned_alone(folder: Path, begun: list[int]) -> None:
    dataset = Photos(folder, PIPELINES["crop and flip"])
    helpers.assert_equal_runs(lambda: list(DataLoader(dataset, batch_size=2)))
    assert not begun


def test_views_of_one_image(folder: Path) -> None:
    """Which is decoded once."""
    helpers.assert_equal_runs(lambda: list(DataLoader(Photos(folder, PIPELINES["policies"], twice=True), batch_size=4)))


def test_a_damaged_file_is_named(folder: Path, begun: list[int]) -> None:
    (folder / "3.jpg").write_bytes(helpers.undecodable())
    kept = accel.stats()["kept"]
    with accel.image_backend("cpu"):
        (batch,) = DataLoader(Photos(folder, PIPELINES["crop and flip"]), batch_size=8)
        with pytest.raises(accel.DecodeError, match=r"3\.jpg.*\(image 3 of a batch of 8\).*\(dataset index 3\)"):
            batch.sum()
    assert begun == [8]
    assert accel.stats()["kept"] == kept, "no file is asked for repeatedly"


def test_a_damaged_file_is_replaced_and_counted_once(folder: Path) -> None:
    (folder / "3.jpg").write_bytes(helpers.undecodable())
    before = accel.stats()["replaced"]
    with accel.image_backend("cpu", on_error="replace"):
        (batch,) = DataLoader(Photos(folder, PIPELINES["crop and flip"]), batch_size=8)
        assert batch[3].unique(dim=-1).shape == (3, 32, 1)
        assert batch[2].unique(dim=-1).shape[-1] > 1
    assert accel.stats()["replaced"] == before + 1
