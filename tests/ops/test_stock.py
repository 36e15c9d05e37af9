"""Every stock transform of torchvision, v1 and v2, on every kind of image it takes: late, exact, drawn alike.

Each goes over 20 samples of a loader, which seed the generators one by one. A transform that torchvision refuses for a
kind of image must be refused alike.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from shutil import which
from typing import Any, NamedTuple

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as v1
from torchvision.transforms import v2

import accel
from tests.support.helpers import is_late, jpeg, random_states, seed_everything
from tests.support.transforms import KINDS, OF_BOTH, OF_V2, SEEDS

pytestmark = pytest.mark.filterwarnings("ignore:.*(deprecated|passing through).*")

GREY = jpeg(45, 41, "L")


ELSEWHERE = {
    "PILToTensor": "every pipeline of uint8 tensors here begins with it",
    "ToTensor": "so does every one of v1's floats",
    "ToImage": "and of v2's tensors",
    "Lambda": "runs a function of the user's",
    "MixUp": "on batches, below",
    "CutMix": "on batches, below",
    "RandomIoUCrop": "needs boxes: test_v2_samples",
    **dict.fromkeys(
        (
            "ClampBoundingBoxes",
            "ClampKeyPoints",
            "ConvertBoundingBoxFormat",
            "SanitizeBoundingBoxes",
            "SanitizeKeyPoints",
            "SetClampingMode",
        ),
        "touches no image",
    ),
    "UniformTemporalSubsample": "of videos",
    "AutoAugmentPolicy": "an enum",
    "InterpolationMode": "an enum",
    "Transform": "the base class",
}


class Case(NamedTuple):
    name: str
    kind: str

    def pipeline(self) -> Any:
        module, before, after = KINDS[self.kind]
        made = {**OF_BOTH, **OF_V2}[self.name](module)
        return module.Compose([*before, made, *([] if self.name in ("FiveCrop", "TenCrop", "ToPILImage") else after)])

    def __str__(self) -> str:
        return f"{self.name}-{self.kind}"


def cases() -> Iterator[Case]:
    for kind in KINDS:
        for name in OF_BOTH if kind.startswith("v1") else {**OF_BOTH, **OF_V2}:
            yield Case(name, kind)


class Samples(Dataset[Any]):
    """A picture through a pipeline, and the random states that leaves."""

    def __init__(self, pipeline: Any, grey: bool = False) -> None:
        self.pipeline = pipeline
        self.grey = grey

    def __len__(self) -> int:
        return SEEDS

    def __getitem__(self, index: int) -> Any:
        seed_everything(index)
        image = self.pipeline(Image.open(io.BytesIO(GREY if self.grey else jpeg(45, 41, seed=index % 3))))
        return image, hash(random_states())


def together(samples: list[Any]) -> Any:
    """Stacked where that is possible."""
    images = [image for image, _ in samples]
    alike = all(isinstance(image, torch.Tensor) and image.shape == images[0].shape for image in images)
    return torch.stack(images) if alike else images, [states for _, states in samples]


def epoch(pipeline: Any, backend: str, grey: bool = False, workers: int = 0, **options: Any) -> Any:
    """What a loader gives, or the type and the text of what it raises."""
    with accel.image_backend(backend, **options):
        try:
            loader = DataLoader(Samples(pipeline, grey), 5, num_workers=workers, collate_fn=together)
            return [(images, states) for images, states in loader]
        except Exception as error:
            return type(error), re.sub(r"<class '[^']*(Image|File)'>", "<an image>", str(error))


def flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, (list, tuple)) else [value]


def tensor(value: Any) -> torch.Tensor:
    return v2.functional.pil_to_tensor(value) if isinstance(value, Image.Image) else torch.clone(value) + 0


def assert_same(found: Any, expected: Any) -> None:
    assert [states for _, states in found] == [states for _, states in expected]
    for one, other in zip(flat([images for images, _ in found]), flat([images for images, _ in expected]), strict=True):
        assert isinstance(one, type(other))
        one, other = tensor(one), tensor(other)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert torch.equal(one, other), f"{int((one != other).sum())} of {one.numel()} values differ"


def check(case: Case, backend: str, grey: bool, **options: Any) -> None:
    pipeline = case.pipeline()
    expected = epoch(pipeline, "torchvision", grey)
    if not isinstance(expected, list):
        if case.name != "LinearTransformation":  # v1's wants one memory order of a tensor, which a late one has
            assert epoch(pipeline, backend, grey, **options) == expected
        return
    before = accel.stats()
    found = epoch(pipeline, backend, grey, **options)
    assert all(is_late(leaf) for leaf in flat([images for images, _ in found]) if not isinstance(leaf, str))
    assert_same(found, expected)
    after = accel.stats()
    if case.name not in ("FiveCrop", "TenCrop", "ToPILImage"):  # of which single images are compared here
        counts = {name: n - before["fallbacks"].get(name, 0) for name, n in after["fallbacks"].items()}
        assert not any(counts.values()), counts


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_late_and_exact(case: Case) -> None:
    check(case, "cpu", grey=False)


@pytest.mark.parametrize("case", [case for case in cases() if case.kind in ("v1-uint8", "v2-uint8")], ids=str)
def test_grey(case: Case) -> None:
    check(case, "cpu", grey=True)


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_all_classes_are_here(module: Any) -> None:
    classes = {name for name in dir(module) if isinstance(getattr(module, name), type)}
    assert classes - set(ELSEWHERE) == set(OF_BOTH) | (set(OF_V2) if module is v2 else set())


@pytest.mark.parametrize("name", ["ColorJitter", "AugMix", "RandomErasing", "ToPILImage", "GaussianNoise"])
def test_through_workers(name: str) -> None:
    pipeline = Case(name, "v2-uint8").pipeline()
    expected = epoch(pipeline, "torchvision")
    assert_same(epoch(pipeline, "cpu", workers=2), expected)


ON_A_DEVICE = ("AugMix", "ColorJitter", "ElasticTransform", "GaussianNoise", "JPEG", "RandAugment", "RandomErasing")


@pytest.mark.skipif(which("g++") is None, reason="the kernels run on the host, compiled by g++")
@pytest.mark.parametrize("name", ON_A_DEVICE)
def test_on_a_device(name: str) -> None:
    """As everywhere, and nothing is left to the host."""
    pipeline = v2.Compose([v2.ToImage(), v2.Resize((30, 30)), OF_V2.get(name, OF_BOTH.get(name))(v2)])
    expected = epoch(pipeline, "torchvision")
    before = accel.stats()["fallbacks"]
    found = epoch(pipeline, "cuda", device="cpu")
    with accel.image_backend("cuda", device="cpu"):
        if all(isinstance(images, torch.Tensor) for images, _ in found):
            found = [(images.to("cpu"), states) for images, states in found]
        assert_same(found, expected)
    assert accel.stats()["fallbacks"] == before
