"""Every stock transform of torchvision, v1 and v2, on every kind of image it takes: lazy, exact, drawn alike.

Each goes over some samples of a loader, which seed the generators one by one. A transform that torchvision refuses
for a kind of image must be refused alike.
"""

import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as v1
from torchvision.transforms import v2

import accel
from tests.support.backends import Backend, on_backends
from tests.support.gaussian import fallbacks as counted
from tests.support.helpers import is_lazy, jpeg, random_states, seed_everything
from tests.support.transforms import KINDS, OF_BOTH, OF_V2, SETTINGS, made

pytestmark = pytest.mark.filterwarnings("ignore:.*(deprecated|passing through).*")

GREY = jpeg(45, 41, "L")


ELSEWHERE = {
    "PILToTensor": "every pipeline of uint8 tensors here begins with it",
    "ToTensor": "so does every one of v1's floats",
    "ToImage": "and of v2's tensors",
    "Lambda": "runs a function of the user's",
    "MixUp": "on batches, below",
    "CutMix": "on batches, below",
    "RandomIoUCrop": "needs boxes: test_v2",
    **dict.fromkeys(("ClampBoundingBoxes", "ConvertBoundingBoxFormat", "SanitizeBoundingBoxes"), "touches no image"),
    **dict.fromkeys(("ClampKeyPoints", "SanitizeKeyPoints", "SetClampingMode"), "nor does this"),
    "UniformTemporalSubsample": "of videos",
    "AutoAugmentPolicy": "an enum",
    "InterpolationMode": "an enum",
    "Transform": "the base class",
}


SEVERAL = ("FiveCrop", "TenCrop", "ToPILImage")
"""Transforms that give other than one tensor, of which single images are compared."""
ALONE = (*SEVERAL, "LinearTransformation", "ConvertImageDtype")  # torchvision resizes halves at once
SEEDS = 3


class Case(NamedTuple):
    name: str
    kind: str

    def pipeline(self, among: bool = False) -> Any:
        """The transform; ``among``: with other steps before and after it."""
        module, before, after = KINDS[self.kind]
        steps = [*before, made(self.name, module)]
        if among:
            around = [module.RandomCrop(40), module.RandomHorizontalFlip(0.5)]
            steps = [*before, *around, steps[-1], module.Resize((33, 30)), module.Pad(2)]
        return module.Compose([*steps, *([] if self.name in SEVERAL else after)])

    def __str__(self) -> str:
        return f"{self.name}-{self.kind}"


def cases() -> Iterator[Case]:
    for kind in KINDS:
        names = OF_BOTH if kind.startswith("v1") else {**OF_BOTH, **OF_V2}
        for name in (*names, *(SETTINGS if kind.endswith("pillow") else ())):
            yield Case(name, kind)


class Samples(Dataset[Any]):
    """A picture through a pipeline, and the random states that leaves."""

    def __init__(self, pipeline: Any, grey: bool, seeds: int) -> None:
        self.pipeline = pipeline
        self.grey = grey
        self.seeds = seeds

    def __len__(self) -> int:
        return self.seeds

    def __getitem__(self, index: int) -> Any:
        seed_everything(index)
        image = self.pipeline(Image.open(io.BytesIO(GREY if self.grey else jpeg(45, 41, seed=index % 3))))
        return image, hash(random_states())


def together(samples: list[Any]) -> Any:
    """Stacked where that is possible."""
    images = [image for image, _ in samples]
    alike = all(isinstance(image, torch.Tensor) and image.shape == images[0].shape for image in images)
    return torch.stack(images) if alike else images, [states for _, states in samples]


def epoch(pipeline: Any, grey: bool = False, seeds: int = SEEDS, workers: int = 0) -> Any:
    """The batches of a loader, or the type and the text of what it raises."""
    try:
        loader = DataLoader(Samples(pipeline, grey, seeds), 5, num_workers=workers, collate_fn=together)
        return list(loader)
    except Exception as error:
        return type(error), re.sub(r"(<class )?'[^']*(Image|File)'>?", "<an image>", str(error))


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


def check(case: Case, backend: Backend, among: bool = False, seeds: int = SEEDS) -> None:
    """A pipeline gives the same on colour and, where that is another path or there is time, on grey."""
    pipeline = case.pipeline(among)
    greys = (False, True) if case.kind in ("v1-pillow", "v1-uint8", "v2-uint8") and not among else (False,)
    if seeds > SEEDS and not case.kind.endswith("float"):
        greys = (False, True)
    with accel.image_backend("torchvision"):
        plain = [epoch(pipeline, grey, seeds) for grey in greys]
    with backend.chosen():
        for grey, expected in zip(greys, plain, strict=True):
            before = counted()
            compare(case, backend, epoch(pipeline, grey, seeds), expected)
            fallbacks = dict(counted().items() - before.items())
            if case.name.startswith("ElasticTransform") and backend.name == "cuda":
                fallbacks.pop("elastic has no kernel for the device; the host ran it", None)
            if case.name == "AugMix" and backend.name == "cuda":  # whose steps on images follow tensors
                fallbacks.pop("tensors that became Pillow images again were computed on the host up to there", None)
            # torchvision refuses it; or the fallbacks of dali say what another backend ran
            assert fallbacks == {} or case.name in SEVERAL or backend.name == "dali" or not isinstance(expected, list)


def compare(case: Case, backend: Backend, found: Any, expected: Any) -> None:
    if not isinstance(expected, list):
        # v1's LinearTransformation wants one memory order of a tensor, which a lazy one has
        assert found == expected or case.name == "LinearTransformation"
        return
    assert all(is_lazy(leaf) for leaf in flat([images for images, _ in found]) if not isinstance(leaf, str))
    if case.name not in SEVERAL:
        found = [(backend.computed(images), states) for images, states in found]
    assert_same(found, expected)


def sensible(case: Case, backend: Backend) -> bool:
    """Accelerators differ from the host in what they do with pixels: floats are torchvision's kernels everywhere."""
    return backend.name == "cpu" or (case.kind in ("v1-pillow", "v2-uint8") and case.name not in SEVERAL)


@on_backends(cases(), sensible)
def test_lazy_and_exact(case: Case, backend: Backend) -> None:
    check(case, backend)


@on_backends((case for case in cases() if case.kind in ("v1-pillow", "v1-float") and case.name not in ALONE), sensible)
def test_among_other_steps(case: Case, backend: Backend) -> None:
    """Steps before it and after it are fused with it, or go on from it."""
    check(case, backend, among=True)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_many_seeds(kind: str, backend: Backend) -> None:
    for case in cases():
        if case.kind == kind and sensible(case, backend):
            check(case, backend, seeds=20)


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_all_classes_are_here(module: Any) -> None:
    classes = {name for name in dir(module) if isinstance(getattr(module, name), type)}
    assert classes - set(ELSEWHERE) == set(OF_BOTH) | (set(OF_V2) if module is v2 else set())


@pytest.mark.parametrize("name", ["ColorJitter", "AugMix", "RandomErasing", "ToPILImage", "GaussianNoise"])
def test_through_workers(name: str, backend: Backend) -> None:
    pipeline = Case(name, "v2-uint8").pipeline()
    expected = epoch(pipeline)
    with backend.chosen():
        assert_same(epoch(pipeline, workers=2), expected)
