"""The cuda backend's passes alone: what the host does not run for them."""

import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

from rig.batches import noise
from tests.support import inside
from tests.support.cuda import assert_equals_torchvision, needs_compiler, stacked

pytestmark = needs_compiler

COLOURS = (
    lambda image: F.adjust_brightness(image, 1.3),
    lambda image: F.adjust_gamma(image, 0.7),
    F.invert,
    lambda image: F.solarize(image, 100),
    lambda image: F.posterize(image, 3),
)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("number", range(len(COLOURS)))
def test_levels_between_passes_and_at_the_end(number: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inside.no_host(monkeypatch)
    first, then = COLOURS[number], COLOURS[number - 2]
    images = [noise(60 + n, 83, mode, n) for n in range(3)]

    def transform(image: Image.Image) -> torch.Tensor:
        image = F.pad(first(F.resize(first(image), [50, 41])), [3], fill=7)
        return F.to_tensor(then(F.hflip(F.resize(image, [20, 30]))))

    assert_equals_torchvision(lambda: stacked(images, transform))
    assert_equals_torchvision(lambda: then(first(images[0])))
