"""Lazy tensors of rows: what is recorded on them, sent and submitted stays rows, and gives what recipes would."""

import gc
import pickle
import weakref
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.lazy.batch import coalesce
from accel.lazy.tensor import LazyTensor
from accel.processes.packing import pack, unpack
from accel.processes.switch import active
from accel.recipes.rows import Form, Pictures, Rows, Slot, Structure
from accel.runtime import first_pass
from tests.support import helpers

FILES = [helpers.jpeg(*size) for size in ((90, 61), (50, 75), (33, 48))]
STRUCTURE = Structure.of(Form("crop", (Slot(0), 2, 20, 25)), Form("hflip", (), 1), Form("to_tensor", (torch.float32,)))
NUMBERS = np.array([(0, 0), (5, 1), (13, 1)])


def rows() -> Rows:
    sources = [F.pil_to_tensor(Image.open(BytesIO(data))).lazy.recipes[0].source for data in FILES]
    return Rows(sources, STRUCTURE, NUMBERS)


def batch() -> Any:
    return LazyTensor.of(rows(), (3,), (3, 20, 25), torch.float32)


def expected() -> torch.Tensor:
    with accel.image_backend("torchvision"):
        images = [F.crop(Image.open(BytesIO(d)), int(t), 2, 20, 25) for d, (t, _) in zip(FILES, NUMBERS, strict=True)]
        return torch.stack([F.to_tensor(F.hflip(i) if f else i) for i, (_, f) in zip(images, NUMBERS, strict=True)])


CHANGES: dict[str, Any] = {
    "nothing": lambda tensor: tensor,
    "half": lambda tensor: tensor.half(),
    "order": lambda tensor: tensor.contiguous(memory_format=torch.channels_last),
    "normalize": lambda tensor: F.normalize(tensor, (0.5,), (0.1,)),
    "flip": F.hflip,
    "erase": lambda tensor: F.erase(
        tensor, 1, 2, 3, 4, torch.rand(3, 3, 4, generator=torch.Generator().manual_seed(0))
    ),
    "blur": lambda tensor: F.gaussian_blur(tensor, 3),
    "part": lambda tensor: tensor[1:],
    "one": lambda tensor: tensor[1],
    "clone": torch.clone,
}


@pytest.mark.parametrize("name", CHANGES)
def test_steps(name: str) -> None:
    with accel.image_backend("cpu"):
        tensor = CHANGES[name](batch())
        helpers.assert_same(tensor + 0, CHANGES[name](expected()) + 0)


def test_steps_keep_the_rows() -> None:
    with accel.image_backend("cpu"):
        for name in ("half", "order", "normalize", "flip"):
            assert isinstance(CHANGES[name](batch()).lazy.recipes, Rows), name


def test_explained_as_recipes_are() -> None:
    with accel.image_backend("cpu"):
        recorded = batch()
        one_by_one = LazyTensor.of(tuple(recorded.lazy.recipes), (3,), (3, 20, 25), torch.float32)
        told = [line for line in accel.explain(recorded).split("\n") if not line.startswith("  together: ")]
        assert told == accel.explain(one_by_one).split("\n")


def test_messages() -> None:
    with accel.image_backend("cpu"):
        given = rows()
        found = unpack(pickle.loads(pickle.dumps(pack(given))))
        assert isinstance(found, Rows)
        assert found.structure is Structure.of(*given.structure.forms)
        assert [(bytes(source.data), steps) for source, steps in found] == [
            (bytes(source.data), steps) for source, steps in given
        ]
        selection = active()
        assert selection is not None
        pixels = np.random.default_rng(0).integers(0, 256, (3, 30, 40, 3), np.uint8)
        pictures = Rows(Pictures(pixels, "pictures", selection), STRUCTURE, NUMBERS)
        again = LazyTensor.of(unpack(pack(pictures)), (3,), (3, 20, 25), torch.float32)
        assert torch.equal(again + 0, LazyTensor.of(pictures, (3,), (3, 20, 25), torch.float32) + 0)


def test_tensors_of_steps_are_sent() -> None:
    with accel.image_backend("cpu"):
        value = torch.rand(3, 1, 1)
        given = Rows(rows().sources, Structure.of(*STRUCTURE.forms, Form("erase", (0, 0, 2, 2, value))), NUMBERS)
        found = unpack(pickle.loads(pickle.dumps(pack(given))))
        assert torch.equal(found[2].steps[-1][1][4], value)


def test_submitted_as_rows() -> None:
    with accel.image_backend("cpu"):
        one, other = batch(), batch().half()
        submission, parts = coalesce([one.lazy, other.lazy])
        assert all(isinstance(task.recipes, Rows) for task in submission.tasks)
        _, parts = coalesce([one.lazy, batch().lazy])
        assert [part.first for part in parts] == [0, 3]
        assert len(parts[0].task.recipes) == 6


@pytest.mark.parametrize(
    "change",
    [F.adjust_brightness, F.adjust_gamma, F.adjust_contrast, F.adjust_saturation, F.adjust_sharpness, F.solarize],
)
def test_numbers_beyond_64_bits_are_no_rows(change: Any) -> None:
    def run() -> torch.Tensor:
        images = [Image.open(BytesIO(data)).resize((20, 20)) for data in FILES]
        return torch.stack([F.to_tensor(change(image, 10**20 + n)) for n, image in enumerate(images)])

    helpers.assert_equal_runs(run, lazy=True)


def test_no_structure_holds_what_images_were_given() -> None:
    patch = torch.rand(3, 4, 5)
    gone = weakref.ref(patch)
    with accel.image_backend("cpu"):
        image = F.to_tensor(Image.open(BytesIO(FILES[0])))
        single = torch.stack([F.erase(image, 1, 2, 4, 5, patch)])
        assert single[0, :, 1:5, 2:7].equal(patch)
    del patch, single, image
    gc.collect()
    assert gone() is None


def test_each_image_keeps_its_own_way() -> None:
    def counted() -> Counter[str]:
        return Counter(accel.stats()["ways"])

    before = counted()
    with accel.image_backend("cpu"):
        tensors = [F.to_tensor(Image.open(BytesIO(data)).resize((20, 20))) for data in FILES]
        tensors[1].lazy.recipes[0].source.way = "another way"  # type: ignore[attr-defined]
        torch.stack(tensors).sum()
    assert counted() - before == {"alone, function by function": 2, "another way": 1}


# -- images whose steps differ, which have their first pass together -------------------------------------------------


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
