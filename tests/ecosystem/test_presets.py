"""The presets of torchvision's training references, in loaders.

They are no part of torchvision's wheel: here are the same pipelines of its public classes, and the real ones where
``ACCEL_TORCHVISION_TREE`` names a source tree of torchvision's.
"""

import os
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import tv_tensors

from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.presets import PRESETS

TREE = os.environ.get("ACCEL_TORCHVISION_TREE")
PHOTOS = [helpers.jpeg(500, 375, seed=seed) for seed in range(4)]


def epoch(transform: Callable[[Image.Image], Any], workers: int) -> list[Any]:
    photos = helpers.Each(PHOTOS, lambda photo: transform(Image.open(BytesIO(photo)).convert("RGB")))
    return helpers.batches(DataLoader(photos, 2, num_workers=workers, collate_fn=list))


NAMES = [name for name in PRESETS if not name.startswith("timm")]
SENT = ("torchvision-segmentation", "classification-ra-v2", "detection-ssd-v1", "segmentation-v2")
"""Those that workers make as well, of each kind of transform; all are in the sweep."""


@pytest.mark.parametrize(
    ("name", "workers"),
    [*((name, 0) for name in NAMES)]
    + [pytest.param(name, 1, marks=[] if name in SENT else pytest.mark.sweep) for name in NAMES],
)
def test_pipelines(name: str, workers: int) -> None:
    made = PRESETS[name][0]()
    proven(lambda: epoch(made, workers), images=len(PHOTOS))


@pytest.fixture
def reference(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """``presets`` of a folder of references, whose modules import one another by their bare names."""
    if TREE is None:
        pytest.skip("ACCEL_TORCHVISION_TREE names no source tree of torchvision's")
    names = ("presets", "transforms", "v2_extras")
    folder = str(Path(TREE, "references", request.param))
    sys.path.insert(0, folder)
    try:
        import presets  # type: ignore[import-not-found]

        yield presets
    finally:
        sys.path.remove(folder)
        for name in names:
            sys.modules.pop(name, None)


def check(transform: Callable[[Image.Image], Any], early: int = 0) -> None:
    """Equal tensors and targets, made by accel; ``early``: what the reference itself makes an array of."""
    proven(lambda: epoch(transform, 0), images=len(PHOTOS) + early, early=early)


@pytest.mark.parametrize("reference", ["classification"], indirect=True)
@pytest.mark.parametrize("new", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize("backend", ["pil", "tensor"])
@pytest.mark.parametrize("policy", [None, "ra", "ta_wide", "augmix", "imagenet"])
def test_classification(reference: ModuleType, policy: str | None, backend: str, new: bool) -> None:
    check(
        reference.ClassificationPresetTrain(
            crop_size=96, auto_augment_policy=policy, random_erase_prob=0.5, backend=backend, use_v2=new
        )
    )
    check(reference.ClassificationPresetEval(crop_size=96, resize_size=112, backend=backend, use_v2=new))


def with_boxes(transform: Any, new: bool) -> Callable[[Image.Image], Any]:
    def both(image: Image.Image) -> Any:
        boxes: Any = torch.tensor([[10.0, 20.0, 300.0, 200.0], [200.0, 100.0, 480.0, 350.0]])
        masks: Any = torch.zeros(2, 375, 500, dtype=torch.uint8)
        masks[0, 20:200, 10:300] = masks[1, 100:350, 200:480] = 1
        if new:
            boxes = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(375, 500))  # type: ignore[call-arg]
            masks = tv_tensors.Mask(masks)
        return transform(image, {"boxes": boxes, "masks": masks, "labels": torch.tensor([1, 2])})

    return both


@pytest.mark.parametrize("reference", ["detection"], indirect=True)
@pytest.mark.parametrize(
    ("policy", "backend", "new"),
    [(policy, "pil", False) for policy in ("hflip", "multiscale", "lsj", "ssd", "ssdlite")]
    + [
        (policy, backend, True)  # the FixedSizeCrop of lsj is of v1
        for policy in ("hflip", "multiscale", "ssd", "ssdlite")
        for backend in ("pil", "tensor", "tv_tensor")
    ],
)
def test_detection(reference: ModuleType, policy: str, backend: str, new: bool) -> None:
    made = reference.DetectionPresetTrain(data_augmentation=policy, backend=backend, use_v2=new)
    permuted = 3 if policy == "ssd" and not new else 0  # of these four, as float tensors
    check(with_boxes(made, new), early=permuted)
    check(with_boxes(reference.DetectionPresetEval(backend=backend, use_v2=new), new))


def with_a_mask(transform: Any, new: bool) -> Callable[[Image.Image], Any]:
    def both(image: Image.Image) -> Any:
        mask: Any = helpers.picture(500, 375, "L")
        return transform(image, tv_tensors.Mask(torch.zeros(375, 500, dtype=torch.uint8)) if new else mask)

    return both


@pytest.mark.parametrize("reference", ["segmentation"], indirect=True)
@pytest.mark.parametrize(("new", "backend"), [(False, "pil"), (True, "pil"), (True, "tensor"), (True, "tv_tensor")])
def test_segmentation(reference: ModuleType, backend: str, new: bool) -> None:
    made = reference.SegmentationPresetTrain(base_size=130, crop_size=120, backend=backend, use_v2=new)
    masks = 0 if new else len(PHOTOS)  # Pillow images, resized and made arrays of
    check(with_a_mask(made, new), early=masks)
    check(with_a_mask(reference.SegmentationPresetEval(base_size=130, backend=backend, use_v2=new), new), early=masks)
