"""The pipelines that most people train with, composed as their sources do for Pillow images."""

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import _presets, v2
from torchvision.transforms import functional as F

from tests.support import helpers
from tests.support.helpers import MEAN, STD


def values(new: bool) -> list[Any]:
    if new:
        return [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return [T.PILToTensor(), T.ConvertImageDtype(torch.float32), T.Normalize(MEAN, STD)]


def classification(new: bool, policy: str | None = None, erase: float = 0.0) -> Any:
    """references/classification, ClassificationPresetTrain."""
    module: Any = v2 if new else T
    steps = [module.RandomResizedCrop(224, antialias=True), module.RandomHorizontalFlip(0.5)]
    if policy is not None:
        steps.append(getattr(module, policy)(interpolation=T.InterpolationMode.BILINEAR))
    steps += values(new)
    if erase:
        steps.append(module.RandomErasing(p=erase))
    return module.Compose([*steps, v2.ToPureTensor()] if new else steps)


def classification_eval(new: bool) -> Any:
    module: Any = v2 if new else T
    return module.Compose([module.Resize(256, antialias=True), module.CenterCrop(224), *values(new)])


class Distorted:
    """references/detection, RandomPhotometricDistort without its permutation of a float tensor's channels."""

    def __init__(self) -> None:
        self.brightness = T.ColorJitter(brightness=(0.875, 1.125))
        self.contrast = T.ColorJitter(contrast=(0.5, 1.5))
        self.hue, self.saturation = T.ColorJitter(hue=(-0.05, 0.05)), T.ColorJitter(saturation=(0.5, 1.5))

    def __call__(self, image: Any) -> Any:
        draws = torch.rand(7)
        steps = [self.saturation, self.hue]
        steps = [self.contrast, *steps] if draws[1] < 0.5 else [*steps, self.contrast]
        image = self.brightness(image) if draws[0] < 0.5 else image
        for draw, step in zip(draws[2:], steps, strict=False):
            image = step(image) if draw < 0.5 else image
        return image


def zoomed_out(image: Any) -> Any:
    width, height = image.size
    sides = [int(side) for side in torch.rand(4) * max(width, height)]
    return F.pad(image, sides, fill=(123, 117, 104)) if torch.rand(1) < 0.5 else image


def cropped(image: Any) -> Any:
    width, height = image.size
    top, left = int(torch.rand(1) * height * 0.5), int(torch.rand(1) * width * 0.5)
    return F.crop(image, top, left, height // 2, width // 2) if torch.rand(1) < 0.8 else image


def detection_v1(name: str) -> Any:
    """references/detection, DetectionPresetTrain, of which the image is looked at."""
    steps: dict[str, list[Any]] = {
        "hflip": [],
        "multiscale": [lambda image: F.resize(image, random.choice([480, 640, 800]), max_size=1333)],
        "lsj": [
            lambda image: F.resize(image, [int(300 + 400 * torch.rand(1)), int(300 + 600 * torch.rand(1))]),
            lambda image: F.crop(image, 0, 0, min(512, image.height), min(512, image.width)),
            lambda image: F.pad(image, [0, 0, 512 - image.width, 512 - image.height], fill=(123, 117, 104)),
        ],
        "ssd": [Distorted(), zoomed_out, cropped],
        "ssdlite": [cropped],
    }
    last = [T.RandomHorizontalFlip(0.5), T.PILToTensor(), T.ConvertImageDtype(torch.float32)]
    return T.Compose([*steps[name], *last])


def detection_v2(name: str) -> Any:
    """references/detection, DetectionPresetTrain with ``use_v2`` on Pillow images."""
    fill = defaultdict(lambda: (123.0, 117.0, 104.0), {tv_tensors.Mask: 0})
    steps: dict[str, list[Any]] = {
        "hflip": [],
        "multiscale": [v2.RandomShortestSize(min_size=(480, 640, 800), max_size=1333, antialias=True)],
        "lsj": [v2.ScaleJitter(target_size=(512, 512), antialias=True)],
        "ssd": [v2.RandomPhotometricDistort(), v2.RandomZoomOut(fill=fill), v2.RandomIoUCrop()],
        "ssdlite": [v2.RandomIoUCrop()],
    }
    last = [v2.RandomHorizontalFlip(0.5), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    boxes = [v2.ConvertBoundingBoxFormat("XYXY"), v2.SanitizeBoundingBoxes(), v2.ToPureTensor()]
    transform = v2.Compose([*steps[name], *last, *boxes])

    def image_of(image: Any) -> Any:
        places = torch.tensor([[10.0, 20.0, 300.0, 200.0], [200.0, 100.0, 480.0, 350.0]])
        target = {
            "boxes": tv_tensors.BoundingBoxes(places, format="XYXY", canvas_size=(375, 500)),  # type: ignore[call-arg]
            "labels": torch.tensor([1, 2]),
        }
        return transform(image, target)[0]

    return image_of


def segmentation_v1() -> Any:
    """references/segmentation, SegmentationPresetTrain(base_size=520, crop_size=480)."""

    def padded(image: Any) -> Any:
        missing = [max(480 - image.width, 0), max(480 - image.height, 0)]
        return F.pad(image, [0, 0, *missing], fill=0) if any(missing) else image

    resize = lambda image: F.resize(image, random.randint(260, 1040))  # noqa: E731
    return T.Compose([resize, T.RandomHorizontalFlip(0.5), padded, T.RandomCrop(480), *values(False)])


def segmentation_v2() -> Any:
    steps = [v2.RandomResize(260, 1040, antialias=True), v2.RandomHorizontalFlip(0.5)]
    crop = v2.RandomCrop(480, pad_if_needed=True)
    dtypes = v2.ToDtype({torch.Tensor: torch.float32, "others": None}, scale=True)
    transform = v2.Compose([*steps, crop, v2.PILToTensor(), dtypes, v2.Normalize(MEAN, STD), v2.ToPureTensor()])
    return lambda image: transform(image, tv_tensors.Mask(torch.zeros(375, 500, dtype=torch.uint8)))[0]


def timm(**options: Any) -> Any:
    return helpers.optional("timm.data").create_transform(224, is_training=True, **options)


PRESETS: dict[str, tuple[Callable[[], Any], set[int]]] = {
    # name: how it is made, and the numbers of stages that its images take
    "torchvision-classification": (lambda: _presets.ImageClassification(crop_size=224), {1}),
    "torchvision-detection": (_presets.ObjectDetection, {1}),
    "torchvision-segmentation": (lambda: _presets.SemanticSegmentation(resize_size=520), {1}),
    "torchvision-flow": (lambda: lambda image: _presets.OpticalFlow()(image, F.hflip(image))[1], {1}),
    "classification-v1": (lambda: classification(False), {1}),
    "classification-v2": (lambda: classification(True), {1}),
    "classification-erasing-v1": (lambda: classification(False, erase=0.5), {1}),
    "classification-erasing-v2": (lambda: classification(True, erase=0.5), {1}),
    "classification-ra-v1": (lambda: classification(False, "RandAugment"), {1, 2, 3, 4}),
    "classification-ra-v2": (lambda: classification(True, "RandAugment"), {1, 2, 3, 4}),
    "classification-ta_wide-v1": (lambda: classification(False, "TrivialAugmentWide", 0.1), {1, 3}),
    "classification-ta_wide-v2": (lambda: classification(True, "TrivialAugmentWide", 0.1), {1, 3}),
    "classification-autoaugment-v1": (lambda: classification(False, "AutoAugment"), {1, 2, 3, 4}),
    "classification-autoaugment-v2": (lambda: classification(True, "AutoAugment"), {1, 2, 3, 4}),
    "classification-eval-v1": (lambda: classification_eval(False), {1}),
    "classification-eval-v2": (lambda: classification_eval(True), {1}),
    **{f"detection-{name}-v1": (lambda name=name: detection_v1(name), {1}) for name in ("hflip", "multiscale", "lsj")},
    **{f"detection-{name}-v2": (lambda name=name: detection_v2(name), {1}) for name in ("hflip", "multiscale", "lsj")},
    "detection-ssdlite-v1": (lambda: detection_v1("ssdlite"), {1}),
    "detection-ssdlite-v2": (lambda: detection_v2("ssdlite"), {1}),
    "detection-ssd-v1": (lambda: detection_v1("ssd"), {1, 2, 3, 4, 5}),
    "detection-ssd-v2": (lambda: detection_v2("ssd"), {1, 2, 3, 4, 5, 6}),
    "segmentation-v1": (segmentation_v1, {1}),
    "segmentation-v2": (segmentation_v2, {1}),
    "timm": (timm, {4}),
    "timm-rand": (lambda: timm(auto_augment="rand-m9-mstd0.5-inc1"), {1, 2, 3, 4}),
}
