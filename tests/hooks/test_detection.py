"""Detection with v2: crops by overlap, hue of tensors, and what follows torchvision's functions on tensors."""

from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

import accel
from accel.hooks import v2_transforms
from accel.ops import hue, tensor_op
from tests.support import helpers, inside


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


@pytest.mark.parametrize("right", [True, False])
def test_crops_are_compared_when_they_are_first_used(right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the switch; and torchvision's own are made where they differ."""
    tried, code = inside.try_draws_again(monkeypatch), v2.RandomIoUCrop.make_params.__code__
    if not right:
        monkeypatch.setattr(v2_transforms, "largest_overlap", lambda *given: np.float32(0.5))
    with accel.image_backend("cpu"):
        assert code not in tried

    def run() -> list[Any]:
        return [helpers.known(v2.RandomIoUCrop()(*sample(BOXES["several"][0]))) for _ in range(9)]

    helpers.assert_equal_runs(run)
    assert tried[code] is right


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


BITS = torch.randint(0, 256, (4, 61, 83), generator=torch.Generator().manual_seed(5))
MASKS: dict[str, torch.Tensor] = {
    "uint8": BITS.byte(),
    "bool": BITS > 99,
    "one": BITS[:1].byte(),
    "one of interleaved ones": BITS.byte()[:1].permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "interleaved": BITS.byte().permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "of classes": BITS[0].byte(),
    "several images": BITS.byte().reshape(2, 2, 61, 83),
    "crop": BITS.byte()[:, 3:50, 7:],
    "none": BITS[:0].byte(),
    "one row": BITS[:, :1].byte(),
    "one column": BITS[:, :, :1].byte(),
    "int64": BITS + (1 << 40),
    "float32": BITS / 0.0,
    "for gradients": (BITS / 255).requires_grad_(),
}
SIZES: tuple[tuple[Any, int | None], ...] = ((40, None), ([200, 31], None), ((61, 83), None), ([61, 500], None))


def resized(mask: torch.Tensor) -> Any:
    """Masks in all sizes and modes, by functions and by transforms; results and errors, types and strides."""
    found: list[Any] = []
    for size, longest in (*SIZES, ([7], 90), (None, 30), ([0, 5], None), ([9.0, 5], None), ("9", None)):
        for mode in (*InterpolationMode, "bilinear", "nearest-exact", 0, "cubic"):
            found.append(helpers.outcome(F.resize, tv_tensors.Mask(mask), size, mode, longest))
        found.append(helpers.outcome(partial(F.resize_mask, max_size=longest), mask, size))
    for transform in (
        v2.Resize((33, 34)),
        v2.ScaleJitter((64, 64)),
        v2.RandomShortestSize([20, 90]),
        v2.RandomResize(9, 99),
    ):
        found += [helpers.outcome(transform, tv_tensors.Mask(mask)) for _ in range(3)]
    found += [helpers.outcome(partial(F.resize_mask, **{name: 3}), mask, 20) for name in ("sizes", "size", "max_size")]
    return [(type(each), each.stride() if isinstance(each, torch.Tensor) else None, each) for each in found]


@pytest.mark.parametrize("name", MASKS)
def test_masks_resized(name: str) -> None:
    helpers.assert_equal_runs(lambda: resized(MASKS[name]))


def test_a_mask_of_the_same_size_is_returned_itself() -> None:
    with accel.image_backend("cpu"):
        assert F.resize_mask(MASKS["uint8"], [61, 83]) is MASKS["uint8"]


@pytest.mark.sweep
def test_nearest_pixels_of_all_sizes() -> None:
    for old in (*range(1, 70), 427, 500, 640, 1333, 4032):
        row = torch.arange(old, dtype=torch.float32)[None, None, None]
        for new in (*range(1, 300), 640, 1024, 1333, 2048):
            expected = torch.nn.functional.interpolate(row, [1, new], mode="nearest").flatten().long()
            assert torch.from_numpy(v2_transforms.nearest(old, new)).equal(expected), (old, new)


def test_nearest_pixels_are_rounded_in_float32() -> None:
    def exactly(old: int, new: int) -> Any:
        return torch.arange(new, dtype=torch.int64) * old // new

    mask = torch.arange(200, dtype=torch.uint8)[None, None]
    differing = 0
    for new in range(1, 600):
        expected = F.resize_mask(mask, [1, new])[0, 0]
        assert mask[0, 0][v2_transforms.nearest(200, new)].equal(expected)
        differing += not mask[0, 0][exactly(200, new)].equal(expected)
    assert differing


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("by", ["compile", "trace", "functionalize"])
def test_masks_that_are_traced_are_left_to_torch(by: str) -> None:
    def shrink(mask: Any) -> Any:
        return F.resize_mask(mask, [30, 40])

    mask = MASKS["uint8"]
    with accel.image_backend("cpu"):
        traced: Any = {
            "compile": lambda: torch.compile(shrink, backend="eager", fullgraph=True),
            "trace": lambda: torch.jit.trace(shrink, 255 - mask),
            "functionalize": lambda: torch.func.functionalize(shrink),
        }[by]()
        found = traced(mask)
    assert found.equal(shrink(mask))
    assert not found.equal(shrink(255 - mask))


def test_another_resize_of_masks_is_left_alone() -> None:
    def other(mask: Any, size: Any, max_size: Any = None) -> Any:
        return F.resize_mask(mask, size, max_size=max_size).flip(-1)

    own = F.resize_mask
    assert v2_transforms.resize_mask(other) is other
    assert v2_transforms.resize_mask(own) is not own


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("degenerate", [(), (1,), (0, 3), (0, 1, 2, 3)])
def test_masks_of_degenerate_boxes(name: str, degenerate: tuple[int, ...]) -> None:
    boxes = torch.tensor([[1.0, 2, 30, 40]]).repeat(4, 1)
    boxes[[*degenerate], 2:] = 0

    def run() -> Any:
        masks = tv_tensors.Mask(MASKS[name])
        found = []
        for number in {4, len(masks)}:
            few = tv_tensors.BoundingBoxes(boxes[:number], format="XYXY", canvas_size=MASKS[name].shape[-2:])
            sample = {"masks": masks, "boxes": few, "labels": torch.arange(len(few)), "name": "one"}
            found += [v2.SanitizeBoundingBoxes()(sample)["masks"]]
        if len(few) == len(masks):
            found += [v2.SanitizeBoundingBoxes(labels_getter=lambda sample: sample[1])((few, masks))[1]]
        for mask in found:
            if mask.requires_grad:
                mask.sum().backward()
        return [(type(each), each.stride(), each is masks, each) for each in found]

    helpers.assert_equal_runs(run)


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
