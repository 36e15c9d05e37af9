"""All of transforms.v2 on lazy images with boxes, masks, keypoints and labels beside them, in tuples and in dicts."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2

import accel
from accel.lazy.tensor_base import is_lazy
from tests.support.helpers import assert_equal_runs, jpeg
from tests.support.transforms import OF_BOTH, OF_V2, made

FIRST = {"pillow": v2.Identity(), "tensor": v2.PILToTensor(), "image": v2.ToImage()}
SCALED = v2.ToDtype(torch.float32, scale=True)

POLICIES = ("AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix")
"""Which refuse samples with boxes or masks."""

OTHERS = {
    "takes not all of these images": ("Normalize", "ConvertImageDtype", "LinearTransformation", "GaussianNoise"),
    "takes no boxes": ("RandomCrop", "Pad", "ToPILImage"),
    "makes several": ("FiveCrop", "TenCrop"),
}

TRANSFORMS: dict[str, Callable[[], Any]] = {
    **{name: partial(made, name, v2) for name in {**OF_BOTH, **OF_V2} if name not in sum(OTHERS.values(), POLICIES)},
    "shorter": lambda: v2.Resize(25, max_size=33),
    "crop": lambda: v2.RandomCrop(30, padding=3),
    "pad": lambda: v2.Pad((1, 2, 3, 4), fill=7),
    "iou-crop": lambda: v2.RandomIoUCrop(),
    "noise": lambda: v2.Compose([v2.ToImage(), SCALED, v2.GaussianNoise()]),
    "lambda": lambda: v2.Lambda(lambda leaf: leaf, tv_tensors.Image, Image.Image),
    "to-pil": lambda: v2.Compose([v2.ToImage(), v2.ToPILImage()]),
    "sanitize": lambda: v2.Compose([v2.RandomCrop(12), v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes(min_size=6)]),
    "keypoints": lambda: v2.Compose([v2.RandomCrop(20), v2.ClampKeyPoints()]),
    "format": lambda: v2.ConvertBoundingBoxFormat("CXCYWH"),
}


def image() -> Image.Image:
    return Image.open(BytesIO(jpeg(60, 40))).convert("RGB")


def target() -> dict[str, Any]:
    size: Any = (40, 60)
    return {
        "boxes": tv_tensors.BoundingBoxes([[3, 4, 30, 31], [20, 8, 55, 39]], format="XYXY", canvas_size=size),
        "masks": tv_tensors.Mask((torch.arange(2400).view(1, 40, 60) % 7).to(torch.uint8)),
        "keypoints": tv_tensors.KeyPoints([[5, 6], [59, 39], [30, 2]], canvas_size=size),
        "labels": torch.tensor([3, 1]),
        "name": "cat",
    }


def known(value: Any) -> Any:
    """The parts of a sample that can be compared: kinds, metadata and every value."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [known(each) for each in value]
    if isinstance(value, dict):
        return {name: known(each) for name, each in value.items()}
    if isinstance(value, Image.Image):
        return "image", value.mode, value.size, value.tobytes()
    if isinstance(value, torch.Tensor):
        plain = torch.clone(value).as_subclass(torch.Tensor)
        kinds = (tv_tensors.Image, tv_tensors.BoundingBoxes, tv_tensors.Mask, tv_tensors.KeyPoints)
        kind = [isinstance(value, each) for each in kinds]
        extra = getattr(value, "format", None), getattr(value, "canvas_size", None)
        return kind, extra, plain.dtype, tuple(plain.shape), plain.numpy().tobytes()
    return value


def same(make: Callable[[], Any], first: Any, sample: Callable[[], tuple[Any, ...]], seeds: int = 4) -> list[Any]:
    """Check samples against torchvision's; how they came out under accel."""

    def several() -> list[Any]:
        results = []
        for _ in range(seeds):
            try:
                results.append(known(v2.Compose([first, make()])(*sample())))
            except Exception as error:
                results.append((type(error), str(error).split(" supports inputs of type ")[0]))
        return results

    return assert_equal_runs(several, 1)  # type: ignore[no-any-return]


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.filterwarnings("ignore:RandomErasing.* passing through", "ignore:.*deprecated")
def test_transforms(name: str, first: Any) -> None:
    results = same(TRANSFORMS[name], first, lambda: (image(), target()))
    results += [tuple(each) for each in same(TRANSFORMS[name], first, lambda: ({"image": image(), **target()},))]
    if name not in ("iou-crop", "sanitize"):  # they need boxes
        results += same(TRANSFORMS[name], first, lambda: (image(), 3))
    assert not any(isinstance(result[0], type) for result in results), "torchvision can do it"


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str, first: Any) -> None:
    same(partial(made, name, v2), first, lambda: (image(), 3))
    same(partial(made, name, v2), first, lambda: ({"image": image(), "label": 3},))
    refused = same(partial(made, name, v2), first, lambda: (image(), target()), 1)
    assert refused[0][0] is TypeError


FILLS: list[dict[Any, Any]] = [
    {tv_tensors.Image: 9, "others": 0},
    {tv_tensors.Image: (1, 2, 3), Image.Image: 7, torch.Tensor: 5, "others": 0},
    {Image.Image: (9, 8, 7), "others": 3},
    {tv_tensors.Mask: 4, tv_tensors.Image: 6},
    {"others": 8},
]
FILLED: dict[str, Callable[[Any], Any]] = {
    "pad": lambda fill: v2.Pad(3, fill=fill),
    "crop": lambda fill: v2.RandomCrop(70, pad_if_needed=True, fill=fill),
    "rotation": lambda fill: v2.RandomRotation(30, fill=fill),
    "affine": lambda fill: v2.RandomAffine(20, (0.1, 0.1), fill=fill),
    "perspective": lambda fill: v2.RandomPerspective(p=1.0, fill=fill),
    "zoom-out": lambda fill: v2.RandomZoomOut(fill=fill, p=1.0),
    "elastic": lambda fill: v2.ElasticTransform(fill=fill),
    "randaugment": lambda fill: v2.RandAugment(fill=fill),
    "trivialaugment": lambda fill: v2.TrivialAugmentWide(fill=fill),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("fill", FILLS, ids=range(len(FILLS)))
@pytest.mark.parametrize("name", FILLED)
def test_fills_by_type(name: str, fill: dict[Any, Any], first: Any) -> None:
    """A lazy image is looked up as what it stands for."""
    same(lambda: FILLED[name](dict(fill)), first, lambda: (image(), 3), 2)


def test_a_fill_of_another_type_would_be_seen() -> None:
    with accel.image_backend("cpu"):
        lazy = v2.functional.to_image(image())
        padded = [v2.Pad(3, fill={kind: 9, "others": 0})(lazy) for kind in (tv_tensors.Image, torch.Tensor)]
        assert all(map(is_lazy, padded))
        assert [int(each[0, 0, 0]) for each in padded] == [9, 0]


DTYPES: list[dict[Any, Any]] = [
    {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None},
    {torch.Tensor: torch.float16, "others": None},
    {"others": torch.float64},
    {tv_tensors.Mask: torch.int64},
]


@pytest.mark.parametrize("first", [FIRST["tensor"], FIRST["image"]], ids=["tensor", "image"])
@pytest.mark.parametrize("dtypes", DTYPES, ids=range(len(DTYPES)))
@pytest.mark.filterwarnings("ignore:scale was set to True")
def test_dtypes_by_type(dtypes: dict[Any, Any], first: Any) -> None:
    same(lambda: v2.ToDtype(dtypes, scale=True), first, lambda: (image(), target()), 1)
    same(lambda: v2.ToDtype(dtypes, scale=True), first, lambda: (image(), 3), 1)
