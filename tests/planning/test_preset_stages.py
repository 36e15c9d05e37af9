"""How many stages the pipelines that most people train with take, whatever was drawn.

torchvision's own presets; those of its training references, composed as they do for Pillow images; timm's.
"""

from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import transforms as T

import accel
from accel.planning.plan import plan
from accel.planning.stages import Effect
from tests.support import helpers
from tests.support.presets import PRESETS

PHOTO = helpers.jpeg(500, 375)
_SEEDS = 60


def photo() -> Any:
    return Image.open(BytesIO(PHOTO)).convert("RGB")


@pytest.mark.parametrize("name", PRESETS)
def test_stages(name: str) -> None:
    make, expected = PRESETS[name]
    with accel.image_backend("cpu"):
        transform, found = make(), set()
        for number in range(_SEEDS):
            helpers.seed_everything(number)
            lazy = transform(photo())
            assert helpers.is_lazy(lazy), f"seed {number}: the pipeline is not recorded"
            stages = plan(lazy.lazy.recipes).decodes[0].items[0].stages
            assert accel.explain(lazy).count("\n  stage ") == len(stages)
            found.add(len(stages))
    assert found <= expected
    assert max(found) == max(expected)


@pytest.mark.parametrize("name", ["classification-ra-v1", "detection-ssd-v1", "detection-ssd-v2", "timm", "timm-rand"])
def test_what_the_stages_give(name: str) -> None:
    make = PRESETS[name][0]

    def images() -> list[torch.Tensor]:
        transform = make()
        found = []
        for number in range(6):
            helpers.seed_everything(number)
            found.append(transform(photo()))
        return found

    helpers.assert_equal_runs(images)


def test_no_stage_only_looks_up_levels() -> None:
    """Every stage between the first pass and the last one is an effect, or moves pixels."""
    with accel.image_backend("cpu"):
        for number in range(_SEEDS):
            helpers.seed_everything(number)
            lazy = T.Compose([T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomInvert(), T.ToTensor()])(photo())
            _, *between, _ = plan(lazy.lazy.recipes).decodes[0].items[0].stages
            assert all(isinstance(stage, Effect) for stage in between)
            assert [stage.op for stage in between].count("adjust_brightness") == 0
