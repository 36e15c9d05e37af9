"""Parts of a lazy batch: as lazy as it is, views of its values as torch's are, computed together and once."""

import copy
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F1
from torchvision.transforms.v2 import functional as F

import accel
from tests.support import helpers
from tests.support.backends import Backend
from tests.support.helpers import is_lazy, outcome

COUNT = 5


def images() -> list[Image.Image]:
    return [Image.open(BytesIO(helpers.jpeg(40, 30, seed=seed))).convert("RGB") for seed in range(COUNT)]


def pixels() -> torch.Tensor:
    return torch.stack([F1.pil_to_tensor(image) for image in images()])


def values() -> torch.Tensor:
    return torch.stack([F1.to_tensor(image) for image in images()])


BATCHES = [
    pixels,
    values,
    lambda: torch.stack([pixels(), pixels()]),
    lambda: F.horizontal_flip(values()),
    lambda: F.adjust_brightness(F.resize(pixels(), [20, 24]), 1.2),
    lambda: values().to(memory_format=torch.channels_last),
]
PARTS: list[Callable[[torch.Tensor], Any]] = [
    lambda batch: batch[0],
    lambda batch: batch[-1],
    lambda batch: batch[1:4],
    lambda batch: batch[-2:],
    lambda batch: batch[:],
    lambda batch: list(batch),
    lambda batch: batch.unbind(),
    lambda batch: torch.unbind(batch, 0),
    lambda batch: batch[0].unsqueeze(0),
    lambda batch: batch[1:][0],
    lambda batch: [F.vertical_flip(image) for image in batch],
    lambda batch: torch.stack([batch[1], batch[0]]),
    lambda batch: torch.stack(list(batch))[1],
]


@pytest.mark.parametrize("number", range(len(PARTS)))
@pytest.mark.parametrize("batch", range(len(BATCHES)))
def test_parts_are_lazy_and_equal(batch: int, number: int) -> None:
    def run() -> Any:
        return PARTS[number](BATCHES[batch]())

    helpers.assert_equal_runs(run, lazy=True)


INDICES: list[Any] = [7, -9, None, ..., (0, 1), [0, 2], torch.tensor(1), slice(3, 3)]
INDICES += [slice(None, None, 2), True, "a", 1.5]


@pytest.mark.parametrize("index", INDICES)
def test_other_indices_are_torchs(index: Any) -> None:
    helpers.assert_equal_runs(lambda: outcome(lambda: values()[index]))


def test_a_batch_is_computed_once_for_all_of_its_parts() -> None:
    with accel.image_backend("cpu"):
        batch = values()
        before = accel.stats()["images"]
        sums = [float(batch[number].sum()) for number in range(COUNT)]
        sums += [float(image.sum()) for image in batch]
        assert accel.stats()["images"] == before + COUNT
        assert len(set(sums)) == COUNT


def test_of_a_step_on_a_part_nothing_else_is_computed() -> None:
    with accel.image_backend("cpu"):
        batch = values()
        before = accel.stats()["images"]
        F.vertical_flip(batch[2]).sum()
        assert accel.stats()["images"] == before + 1
        assert is_lazy(batch)


@pytest.mark.parametrize(
    "change",
    [
        lambda batch, part: part.add_(1),
        lambda batch, part: batch.mul_(2),
        lambda batch, part: F1.normalize(part, [0.5] * 3, [0.5] * 3, inplace=True),
        lambda batch, part: F.normalize(batch, [0.5] * 3, [0.5] * 3, inplace=True),
        lambda batch, part: F1.erase(part, 1, 2, 5, 6, torch.zeros(3, 1, 1), inplace=True),
        lambda batch, part: F.erase(part, 1, 2, 5, 6, torch.zeros(3, 1, 1), inplace=True),
        lambda batch, part: F.erase(batch, 1, 2, 5, 6, torch.zeros(3, 1, 1), inplace=True),
        lambda batch, part: batch.transpose_(0, 3).add_(1),
        lambda batch, part: part.sum(),
        lambda batch, part: batch.sum(),
    ],
)
def test_what_is_changed_in_one_is_changed_in_the_other(change: Callable[[Any, Any], Any]) -> None:
    def run() -> Any:
        batch = values()
        part = batch[1]
        before = F.vertical_flip(part)
        change(batch, part)
        after = F.vertical_flip(part)
        return batch, part, before, after, batch[1], batch[0]

    helpers.assert_equal_runs(run)


def test_a_part_of_a_part_sees_what_is_changed_in_the_batch() -> None:
    def run() -> Any:
        batch = values()
        part = batch[0:2][1]
        batch.add_(1)
        return F.vertical_flip(part), part

    helpers.assert_equal_runs(run)


def test_normalize_in_place_is_recorded() -> None:
    def run() -> Any:
        image = F1.to_tensor(images()[0])
        same = F.normalize(image, [0.4] * 3, [0.3] * 3, inplace=True)
        assert same is image
        return image

    helpers.assert_equal_runs(run, lazy=True)


@pytest.mark.parametrize(
    ("erase", "tensor"), [(F1.erase, F1.to_tensor), (F.erase, F1.to_tensor), (F.erase, F.to_image)]
)
def test_erase_in_place_is_recorded(erase: Callable[..., Any], tensor: Callable[..., Any]) -> None:
    def run() -> Any:
        image = tensor(images()[0])
        return image, erase(image, 1, 2, 5, 6, torch.ones(3, 1, 1, dtype=image.dtype), inplace=True)

    helpers.assert_equal_runs(run, lazy=True)


def processed(tensors: list[torch.Tensor], *, grouped: bool = True) -> torch.Tensor:
    """The steps of transformers' torchvision-backed image processors."""
    stacks = [torch.stack(tensors)] if grouped else [image.unsqueeze(0) for image in tensors]
    resized = [F.resize(stack, [24, 32], interpolation=InterpolationMode.BICUBIC) for stack in stacks]
    singles = [stack[number] for stack in resized for number in range(len(stack))]
    stacks = [torch.stack(singles)] if grouped else [image.unsqueeze(0) for image in singles]
    finished = []
    for stack in stacks:
        cropped = F.center_crop(stack, [20, 20])
        finished.append(F.normalize(cropped.to(torch.float32), [120.0] * 3, [60.0] * 3, inplace=True))
    return torch.stack([stack[number] for stack in finished for number in range(len(stack))], dim=0)


@pytest.mark.parametrize("grouped", [True, False])
def test_image_processors_stay_lazy(grouped: bool) -> None:
    def run() -> Any:
        before = accel.stats()["images"]
        batch = processed([F.pil_to_tensor(image).contiguous() for image in images()], grouped=grouped)
        lazy.append((is_lazy(batch), accel.stats()["images"] - before))
        return batch

    lazy: list[Any] = []
    helpers.assert_equal_runs(run)
    assert lazy == [(False, 0), (True, 0)]


def process(batch: list[Any]) -> torch.Tensor:
    return processed([F.pil_to_tensor(image) for image in batch])


@pytest.mark.parametrize("workers", [0, 1])
def test_image_processors_in_a_collate_function(workers: int) -> None:
    def run() -> Any:
        before = accel.stats()["images"]
        options = {"timeout": 60} if workers else {}
        loader = DataLoader(images(), batch_size=2, num_workers=workers, collate_fn=process, **options)  # type: ignore[arg-type]
        batches = helpers.batches(loader)
        sums = [batch.sum() for batch in batches]
        counts.append(accel.stats()["images"] - before)
        return batches, sums

    counts: list[int] = []
    helpers.assert_equal_runs(run)
    assert counts == [0, COUNT]


@pytest.mark.parametrize("make", BATCHES)
def test_where_parts_lie(make: Callable[[], torch.Tensor]) -> None:
    def run() -> Any:
        batch = make()
        parts = [batch[1], *batch, batch[1:3], batch[1:][0], batch[1:].unsqueeze(0), batch[-1].unsqueeze(0)]
        before = [part.storage_offset() for part in parts]
        assert [(part + 0, part.storage_offset())[1] for part in parts] == before
        return before

    helpers.assert_equal_runs(run)


def written(way: str, batch: torch.Tensor) -> Any:
    part = batch[1]
    if way == "out=":
        torch.add(batch[0], 1, out=batch[0])
        torch.mul(part, torch.full((1, 1, 1), 2.0), out=part)
    elif way == "resize_":
        part.resize_(part.shape).zero_()
    elif way == "untyped_storage":
        batch.untyped_storage()
        part.zero_()
    elif way == "deepcopy":
        batch, part = copy.deepcopy((batch, part))
        part.zero_()
    elif way == "fake":
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert (part + 1).shape == part.shape
        part.zero_()
    return batch + 0, part + 0


@pytest.mark.parametrize("way", ["out=", "resize_", "untyped_storage", "deepcopy", "fake"])
def test_what_is_written_into_a_part_is_in_the_batch(way: str) -> None:
    helpers.assert_equal_runs(lambda: written(way, values()))


@pytest.mark.parametrize("size", [(1, 4, 5), (3, 1, 1)])
@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format])
def test_what_is_in_every_order_is_not_copied(size: tuple[int, int, int], order: torch.memory_format) -> None:
    def run() -> Any:
        small = [F1.resize(image.convert("L" if size[0] == 1 else "RGB"), size[1:]) for image in images()]
        batch = torch.stack([F1.to_tensor(image) for image in small])
        same = batch.contiguous(memory_format=order)
        copied = batch.clone(memory_format=order)
        strides = same.stride(), copied.stride()
        same.zero_()
        return batch, same, copied, strides

    helpers.assert_equal_runs(run)


def test_transformers() -> None:
    transformers = helpers.optional("transformers")
    kind = getattr(transformers, "ViTImageProcessorFast", None) or transformers.ViTImageProcessor
    processor = kind(size={"height": 32, "width": 32})

    def run(grouping: bool) -> Any:
        tensors = [F.pil_to_tensor(image) for image in images()]
        return processor(tensors, return_tensors="pt", disable_grouping=not grouping)["pixel_values"]

    for grouping in (True, False):
        helpers.assert_equal_runs(lambda grouping=grouping: run(grouping), lazy=True)


def test_parts_under_all_backends(backend: Backend) -> None:
    def run() -> Any:
        batch = values()
        return [part + 0 for part in (batch[1], torch.stack(list(batch[1:])), *batch)]

    backend.equals_torchvision(run)
