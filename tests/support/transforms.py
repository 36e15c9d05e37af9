"""The stock transforms of torchvision, v1 and v2, in one table."""

from collections.abc import Callable
from typing import Any

import torch
from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as F
from torchvision.transforms import v2

SCALED = v2.ToDtype(torch.float32, scale=True)
MATRIX = torch.linspace(-1, 1, 48 * 48).view(48, 48), torch.linspace(0, 1, 48)
# Each entry makes a transform of a module's classes: of torchvision.transforms, or of torchvision.transforms.v2.
OF_BOTH: dict[str, Callable[[Any], Any]] = {
    "AugMix": lambda t: t.AugMix(),
    "AutoAugment": lambda t: t.AutoAugment(),
    "CenterCrop": lambda t: t.CenterCrop((30, 50)),
    "ColorJitter": lambda t: t.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "Compose": lambda t: t.Compose([t.RandomCrop(30), t.RandomInvert(), t.Compose([t.Resize(20)])]),
    "ConvertImageDtype": lambda t: t.ConvertImageDtype(torch.float16),
    "ElasticTransform": lambda t: t.ElasticTransform(alpha=60.0),
    "FiveCrop": lambda t: t.FiveCrop(20),
    "GaussianBlur": lambda t: t.GaussianBlur((5, 9)),
    "Grayscale": lambda t: t.Grayscale(3),
    "LinearTransformation": lambda t: t.Compose([t.Resize((4, 4)), t.LinearTransformation(*MATRIX)]),
    "Normalize": lambda t: t.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)),
    "Pad": lambda t: t.Pad((1, 2, 3, 4), padding_mode="reflect"),
    "RandAugment": lambda t: t.RandAugment(),
    "RandomAdjustSharpness": lambda t: t.RandomAdjustSharpness(1.7),
    "RandomAffine": lambda t: t.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), (3, 4), interpolation=Mode.BILINEAR, fill=1),
    "RandomApply": lambda t: t.RandomApply([t.ColorJitter(0.4), t.RandomSolarize(0.6)], p=0.5),
    "RandomAutocontrast": lambda t: t.RandomAutocontrast(),
    "RandomChoice": lambda t: t.RandomChoice([t.RandomInvert(), t.RandomRotation(30), t.GaussianBlur(3)]),
    "RandomCrop": lambda t: t.RandomCrop(43, padding=4, padding_mode="edge"),
    "RandomEqualize": lambda t: t.RandomEqualize(),
    "RandomErasing": lambda t: t.Compose([t.RandomErasing(0.8, value="random"), t.RandomHorizontalFlip()]),
    "RandomGrayscale": lambda t: t.RandomGrayscale(0.5),
    "RandomHorizontalFlip": lambda t: t.RandomHorizontalFlip(),
    "RandomInvert": lambda t: t.RandomInvert(),
    "RandomOrder": lambda t: t.RandomOrder([t.ColorJitter(0.4), t.RandomPerspective(), t.RandomCrop(32)]),
    "RandomPerspective": lambda t: t.RandomPerspective(p=0.8),
    "RandomPosterize": lambda t: t.RandomPosterize(3),
    "RandomResizedCrop": lambda t: t.RandomResizedCrop(24),
    "RandomRotation": lambda t: t.RandomRotation(40, interpolation=Mode.BILINEAR, expand=True, fill=1),
    "RandomSolarize": lambda t: t.RandomSolarize(0.4),
    "RandomVerticalFlip": lambda t: t.RandomVerticalFlip(),
    "Resize": lambda t: t.Resize((30, 27)),
    "TenCrop": lambda t: t.TenCrop(20),
    "ToPILImage": lambda t: t.Compose([t.RandomSolarize(0.4), t.ToPILImage(), t.RandomRotation(20), t.PILToTensor()]),
    "TrivialAugmentWide": lambda t: t.TrivialAugmentWide(),
}
OF_V2: dict[str, Callable[[Any], Any]] = {
    "GaussianNoise": lambda t: t.RandomChoice(
        [t.Compose([each, t.GaussianNoise(0.1, 0.2)]) for each in of_any_order(t)]
    ),
    "Identity": lambda t: t.Identity(),
    "JPEG": lambda t: t.JPEG((20, 90)),
    "RGB": lambda t: t.RGB(),
    "RandomChannelPermutation": lambda t: t.RandomChannelPermutation(),
    "RandomPhotometricDistort": lambda t: t.RandomPhotometricDistort(p=0.7),
    "RandomResize": lambda t: t.RandomResize(20, 50),
    "RandomShortestSize": lambda t: t.RandomShortestSize([30, 40]),
    "RandomZoomOut": lambda t: t.RandomZoomOut(fill=1),
    "ScaleJitter": lambda t: t.ScaleJitter((40, 50)),
    "ToDtype": lambda t: t.ToDtype({torch.Tensor: torch.float64, "others": torch.float32}, scale=True),
    "ToPureTensor": lambda t: t.Compose([t.ColorJitter(0.4), t.ToPureTensor()]),
}


def of_any_order(t: Any) -> list[Any]:
    """Transforms that leave an image in this or that order in memory, in which noise is drawn."""
    return [
        t.Identity(),
        t.RandomResizedCrop(30),
        t.Resize((29, 31)),
        t.RandomCrop(30),
        t.Compose([t.RandomCrop(30), t.Resize(20)]),
        t.Compose([t.CenterCrop((20, 41)), t.Resize(28)]),
        t.Compose([t.RandomCrop(30), t.RandomHorizontalFlip(1.0), t.Resize(20)]),
        t.Pad(2),
        t.ColorJitter(0.3, 0.3),
        t.ColorJitter(hue=0.2),
        t.GaussianBlur(3),
    ]


SETTINGS: dict[str, Callable[[Any], Any]] = {
    "AutoAugment-CIFAR10": lambda t: t.AutoAugment(v1.AutoAugmentPolicy.CIFAR10, Mode.BILINEAR, fill=30),
    "AutoAugment-SVHN": lambda t: t.AutoAugment(v1.AutoAugmentPolicy.SVHN),
    "RandAugment-strong": lambda t: t.RandAugment(3, 20, interpolation=Mode.BICUBIC, fill=7),
    "TrivialAugmentWide-bilinear": lambda t: t.TrivialAugmentWide(interpolation=Mode.BILINEAR),
    "RandomAffine-nearest": lambda t: t.RandomAffine(30, (0.2, 0.1), (0.6, 1.3), (-20, 20, -5, 8)),
    "RandomAffine-bicubic": lambda t: t.RandomAffine(30, (0.2, 0.1), (0.5, 2), 10, Mode.BICUBIC, fill=40),
    "RandomRotation-nearest": lambda t: t.RandomRotation(90, expand=True),
    "RandomRotation-center": lambda t: t.RandomRotation(45, Mode.BILINEAR, center=(3, 5), fill=(77,)),
    "RandomRotation-quarters": lambda t: t.RandomChoice(
        [t.RandomRotation((a, a), expand=True) for a in range(0, 360, 90)]
    ),
    "RandomPerspective-nearest": lambda t: t.RandomPerspective(0.7, 1.0, Mode.NEAREST, fill=3),
    "ElasticTransform-small": lambda t: t.ElasticTransform(20.0, 3.0),
    "Grayscale-1": lambda t: t.Grayscale(),
    "Grayscale-and-back": lambda t: t.Compose([t.Grayscale(1), t.Lambda(lambda image: image.convert("RGB"))]),
    "RandomInvert-always": lambda t: t.RandomInvert(1),
    "RandomPosterize-always": lambda t: t.RandomPosterize(3, 1),
    "RandomSolarize-levels": lambda t: t.RandomSolarize(100, 1),
    "RandomAdjustSharpness-always": lambda t: t.RandomAdjustSharpness(2.0, 1),
    "RandomAutocontrast-always": lambda t: t.RandomAutocontrast(1),
    "RandomEqualize-always": lambda t: t.RandomEqualize(1),
    "adjust_gamma": lambda t: t.Lambda(lambda image: F.adjust_gamma(image, 0.7, 1.1)),
    "adjust_hue": lambda t: t.Lambda(lambda image: F.adjust_hue(image, 0.2)),
}
"""Further settings of the same, for Pillow images."""

POLICIES = ("RandAugment", "TrivialAugmentWide", "AutoAugment", "ColorJitter")

KINDS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "v1-pillow": (v1, [], [v1.ToTensor()]),
    "v1-uint8": (v1, [v1.PILToTensor()], []),
    "v1-float": (v1, [v1.ToTensor()], []),
    "v2-pillow": (v2, [], [v2.ToImage(), SCALED]),
    "v2-uint8": (v2, [v2.ToImage()], []),
    "v2-pure": (v2, [v2.PILToTensor()], []),
    "v2-float": (v2, [v2.ToImage(), SCALED], []),
}
"""A module, what makes an image of this kind, and what makes a tensor of it in the end."""


def made(name: str, module: Any) -> Any:
    """The transform of that name in the tables, of a module's classes."""
    return {**OF_BOTH, **OF_V2, **SETTINGS}[name](module)
