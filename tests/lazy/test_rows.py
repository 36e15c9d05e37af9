"""Lazy tensors of rows: what is recorded on them, sent and submitted stays rows, and gives what recipes would."""

import gc
import pickle
import weakref
from collections import Counter
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.lazy.batch import coalesce
from accel.lazy.tensor import LazyTensor
from accel.processes.packing import pack, unpack
from accel.processes.switch import active
from accel.recipes.rows import Form, Pictures, Rows, Slot, Structure
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
