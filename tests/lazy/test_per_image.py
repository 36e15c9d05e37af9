"""``accel.per_image``: the loop over a batch's images, computed as one batch."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2

import accel
from tests.support import helpers
from tests.support.backends import BACKENDS, Backend
from tests.support.helpers import is_lazy

FILES = [helpers.jpeg(40, 30, seed=seed) for seed in range(6)]
VALUES = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "crop": v2.Compose([v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), *VALUES]),
    "pixels": v2.RandomCrop(20),
    "colours": v2.Compose([v2.RandomCrop(20), v2.ColorJitter(0.3, 0.3), *VALUES]),
    "two": lambda image: (v2.RandomCrop(20)(image), v2.RandomCrop(10)(image)),
}


def batch(kind: str) -> Any:
    images = [v2.functional.pil_to_tensor(Image.open(BytesIO(file))) for file in FILES]
    return images if kind == "list" else torch.stack(images) if kind == "stacked" else torch.stack(images).clone() + 0


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("kind", ["stacked", "values", "list"])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda each: each.name)
def test_it_is_the_loop(backend: Backend, kind: str, name: str) -> None:
    def loop() -> Any:
        return torch.utils.data.default_collate([TRANSFORMS[name](image) for image in batch(kind)])

    expected, states = helpers.run("torchvision", loop)
    found, states_after = backend.made(lambda: accel.per_image(TRANSFORMS[name])(batch(kind)))
    assert states_after == states
    helpers.assert_same(found, expected)


def test_a_batch_as_a_whole_draws_once() -> None:
    """So that drawing once would be noticed above."""
    same = torch.stack([batch("list")[0]] * 6)
    with accel.image_backend("cpu"):
        together, apart = v2.RandomCrop(20)(same), accel.per_image(v2.RandomCrop(20))(same)
        assert all(torch.equal(image, together[0]) for image in together)
        assert not all(torch.equal(image, apart[0]) for image in apart)


def test_a_lazy_batch_stays_lazy_and_is_computed_at_once() -> None:
    with accel.image_backend("cpu"):
        before = accel.stats()
        made = accel.per_image(TRANSFORMS["crop"])(batch("stacked"))
        assert is_lazy(made)
        assert made.shape == (6, 3, 24, 24)
        made.sum()
        after = accel.stats()
        assert after["computed early"] == before["computed early"]
        assert after["images"] == before["images"] + 6


def test_what_cannot_be_put_together() -> None:
    with accel.image_backend("cpu"):
        sizes = iter([20, 21, 20, 20, 20, 20])
        with pytest.raises(RuntimeError, match=r"equal size"):
            accel.per_image(lambda image: v2.functional.center_crop(image, [next(sizes)] * 2))(batch("stacked"))
        pictures = [tv_tensors.Image(Image.open(BytesIO(file))) for file in FILES]
        assert accel.per_image(v2.RandomCrop(20))(pictures).shape == (6, 3, 20, 20)  # type: ignore[arg-type]
