"""Pictures, and the check that a pipeline gives the same with and without accel.

``ACCEL_TEST_PHOTOS=DIR`` runs the pipelines on the JPEG files of a folder instead of the tests' own pictures.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from torchvision import transforms as T

from tests.support import helpers
from tests.support.helpers import MEAN, STD, Named, assert_same, is_lazy, outcome, random_states, run, seed_everything

PHOTOS = os.environ.get("ACCEL_TEST_PHOTOS")
PADDINGS = ("constant", "edge", "reflect", "symmetric")
TRAIN = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])
EVAL = T.Compose([T.Resize(72), T.CenterCrop(64), T.ToTensor(), T.Normalize(MEAN, STD)])


def all_pictures() -> tuple[Named, ...]:
    if PHOTOS:
        return tuple(Named(path.name, path.read_bytes()) for path in sorted(Path(PHOTOS).rglob("*.jp*g")))
    return helpers.pictures()


PICTURES = all_pictures()
COLOUR, GREY = helpers.pictures()[0], helpers.pictures()[3]


def rgb(picture: Named) -> Image.Image:
    return picture.open().convert("RGB")


def check(*transforms: Callable[[Any], Any], lazy: bool | None = None, pictures: Any = PICTURES, seed: int = 0) -> None:
    """Each of ``transforms`` gives the same with and without accel, on every picture."""

    def results() -> list[Any]:
        found = []
        for transform in transforms:
            for number, picture in enumerate(pictures):
                seed_everything(seed + number)
                found.append((outcome(lambda: transform(rgb(picture))), hash(random_states())))  # noqa: B023
        return found

    actual, _ = run("cpu", results)
    for (value, _), picture in zip(actual, [*pictures] * len(transforms), strict=True):
        assert lazy is None or type(value) is type or is_lazy(value) == lazy, picture.name
    assert_same(actual, run("torchvision", results)[0])
