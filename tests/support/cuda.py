"""Helpers of the cuda backend's tests: its results, compared with torchvision's.

They run its kernels on the host, or on the device that $ACCEL_TEST_DEVICE names.
"""

import os
from collections.abc import Callable, Sequence
from shutil import which
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import testing
from accel.backends.cuda.decoder import Decoder
from accel.backends.cuda.execution import Execution
from tests.support import inside
from tests.support.helpers import MEAN, STD, assert_same, pictures

DEVICE = os.environ.get("ACCEL_TEST_DEVICE", "cpu")
ON_HOST = DEVICE == "cpu"

needs_compiler = pytest.mark.skipif(ON_HOST and which("g++") is None, reason="the kernels run on the host through g++")
"""Skips a test where the stand-in cannot be built."""

host_only = pytest.mark.skipif(not ON_HOST, reason="it looks into the stand-in for the device")


def on_device(function: Callable[[], Any], **options: Any) -> Any:
    """The function's recordings, computed by the cuda backend's kernels."""
    with accel.image_backend("cuda", **{"device": DEVICE, **options}):
        return testing.computed(function())


def assert_equals_torchvision(function: Callable[[], Any], **options: Any) -> Any:
    """The function's result is torchvision's, bit for bit; returns it."""
    with accel.image_backend("torchvision"):
        expected = function()
    found = on_device(function, **options)
    assert_same(found, expected)
    return found


def watch_finished_work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ran, in order: work "finished" by a worker, or work with "files" or without ("pixels") of this process."""
    found: list[str] = []

    def noted(launch: Any, execution: Execution) -> None:
        own = execution.finished
        found.append("finished" if own.schedule is None else "files" if own.summary.decoded else "pixels")
        launch(execution)

    inside.wrap(monkeypatch, Execution, "launch", noted)
    monkeypatch.setattr(Decoder, "agrees", lambda _: True)
    return found


def stacked(images: Sequence[Image.Image], transform: Callable[[Image.Image], torch.Tensor]) -> torch.Tensor:
    return torch.stack([transform(image) for image in images])


def pipeline() -> torch.Tensor:
    """A batch of files, each with a crop, a resize and floats of its own."""

    def transform(image: Image.Image) -> torch.Tensor:
        width, height = image.size
        crop = F.resized_crop(image.convert("RGB"), height // 5, width // 7, height // 2 + 1, width // 2 + 1, [45, 38])
        return F.normalize(F.to_tensor(F.hflip(crop)), MEAN, STD)

    return stacked([each.open() for each in pictures()], transform)
