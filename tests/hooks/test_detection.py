"""Detection with v2: crops by overlap, hue of tensors, and what follows torchvision's functions on tensors."""

from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import accel
from accel.hooks import v2_transforms
from accel.ops import hue, tensor_op
from tests.support import helpers


def sample(boxes: Any, size: tuple[int, int] = (90, 120), **kind: Any) -> tuple[Any, Any]:
    image = Image.open(BytesIO(helpers.jpeg(size[1], size[0])))
    return image, tv_tensors.BoundingBoxes(boxes, **{"format": "XYXY", "canvas_size": size, **kind})


BOXES: dict[str, tuple[Any, dict[str, Any]]] = {
    "one": ([[10.0, 20, 70, 80]], {}),
    "several": ([[1.5, 2, 30, 41.25], [40, 3, 119, 60], [5, 50, 60, 89]], {}),
    "as centres": ([[50.0, 40, 30, 20], [90, 60, 20, 30]], {"format": "CXCYWH"}),
    "without area": ([[50.0, 40, 50, 40], [10, 10, 60, 70]], {}),
    "whole numbers": ([[10, 20, 70, 80]], {}),
    "float64": ([[10.0, 20, 70, 80]], {"dtype": torch.float64}),
}


@pytest.mark.parametrize("name", BOXES)
def test_crops_by_overlap(name: str) -> None:
    """Images, boxes and random states, for many seeds; also options that float32 rounds up or down."""
    boxes, kind = BOXES[name]
    original = v2.RandomIoUCrop.make_params

    def run() -> Any:
        found = []
        for options in (None, [0.3, 0.7, 1.0], [0.5, 2]):
            transform = v2.Compose([v2.RandomIoUCrop(sampler_options=options, trials=9), v2.SanitizeBoundingBoxes()])
            for _ in range(12):
                image, target = sample(boxes, **kind)
                found.append(helpers.known(transform(image, {"boxes": target, "labels": torch.arange(len(boxes))})))
        return found

    helpers.assert_equal_runs(run)
    with accel.image_backend("cpu"):
        assert v2.RandomIoUCrop.make_params is not original
    assert v2.RandomIoUCrop.make_params is original


def test_an_overlap_is_compared_in_float32() -> None:
    first, last = torch.tensor([[0.0, 0.0]]).numpy(), torch.tensor([[10.0, 7.0]]).numpy()
    begin, end = torch.tensor([0, 0]).numpy(), torch.tensor([10, 10]).numpy()
    found = v2_transforms.largest_overlap(first, last, begin, end)
    assert found.dtype == "float32"
    assert not found < torch.tensor(0.7).numpy()
    assert float(found) < 0.7


@pytest.mark.parametrize("interleaved", [True, False])
def test_hue_of_tensors(interleaved: bool) -> None:
    levels = torch.randint(0, 256, (3, 70, 83), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    levels[1:, :20] = levels[0, :20] // 9
    values = levels.permute(1, 2, 0).contiguous().permute(2, 0, 1) if interleaved else levels
    for factor in (-0.5, -0.2, -1e-9, 0.0, 0.017, 1 / 3, 0.5):
        found, expected = hue.adjust_hue(values, factor), F.adjust_hue(values, factor)
        assert found.equal(expected)
        assert found.stride() == expected.stride()
        assert not found.equal(F.adjust_hue(values, factor - 0.4 if factor > 0 else factor + 0.4))
    assert tensor_op("v2.adjust_hue").apply is hue.adjust_hue
    assert hue.adjust_hue(values[:, 3:9, ::2], 0.1).equal(F.adjust_hue(values[:, 3:9, ::2], 0.1))
    assert hue.adjust_hue(values / 255, 0.1).equal(F.adjust_hue(values / 255, 0.1))


@pytest.mark.sweep
def test_hue_of_all_colours() -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    for factor in (-0.5, -0.05, -1e-9, 0.0, 0.02, 0.1, 1 / 3, 0.5):
        for red in levels.split(16):
            cube = torch.stack(torch.meshgrid(red, levels, levels, indexing="ij")).reshape(3, -1, 256)
            assert hue.adjust_hue(cube, factor).equal(F.adjust_hue(cube, factor))


AFTER = {
    "ssd": [v2.RandomZoomOut(fill=123, p=1.0), v2.RandomIoUCrop(), v2.RandomHorizontalFlip(1.0)],
    "crop": [v2.RandomCrop(40), v2.RandomHorizontalFlip(1.0)],
    "resize": [v2.Resize((50, 60)), v2.RandomPhotometricDistort(p=1.0), v2.CenterCrop(70)],
    "nothing": [],
}


@pytest.mark.parametrize("name", AFTER)
@pytest.mark.parametrize("grey", [False, True])
def test_steps_behind_functions_on_tensors(name: str, grey: bool) -> None:
    """Each image is computed once, together with the others, whatever was recorded behind contrast and saturation."""
    first = v2.ColorJitter(0.3, 0.3, 0.3, 0.0 if grey else 0.2)
    last = [v2.ToDtype(torch.float32, scale=True), v2.SanitizeBoundingBoxes()]
    transform = v2.Compose([v2.ToImage(), first, *AFTER[name], *last])
    files = [helpers.jpeg(120, 90 + number, "L" if grey else "RGB", seed=number) for number in range(4)]

    def run() -> list[Any]:
        made = []
        for number, file in enumerate(files):
            boxes = sample([[10.0, 20, 70, 80], [1, 1, 50, 60]], (90 + number, 120))[1]
            made.append(transform(Image.open(BytesIO(file)), {"boxes": boxes, "labels": torch.arange(2)}))
        return made

    before = accel.stats()["images"]
    helpers.assert_equal_runs(run)
    assert accel.stats()["images"] - before == len(files)
    with accel.image_backend("cpu"):
        assert "adjust_contrast" in accel.explain(run()[0][0])


def test_a_damaged_file_behind_functions_on_tensors() -> None:
    transform = v2.Compose(
        [v2.ToImage(), v2.ColorJitter(contrast=0.5), v2.CenterCrop(200), v2.RandomHorizontalFlip(1.0)]
    )
    with accel.image_backend("cpu"):
        image = transform(Image.open(BytesIO(helpers.undecodable())))
        with pytest.raises(accel.DecodeError, match=r"broken data stream"):
            image.sum()
