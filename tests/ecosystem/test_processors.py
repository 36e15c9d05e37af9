"""Hugging Face transformers: image processors, made of their classes with the defaults of the published models."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.io import decode_image

import accel
from tests.support import helpers
from tests.support.ecosystem import proven

transformers = helpers.optional("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")

PROCESSORS: dict[str, dict[str, Any]] = {
    "CLIPImageProcessor": {},
    "ViTImageProcessor": {},
    "SiglipImageProcessor": {},
    "BitImageProcessor": {"size": {"shortest_edge": 256}},  # DINOv2
}
SIZES = ((200, 150), (131, 97), (90, 143), (260, 70))
FILES = [helpers.jpeg(*size, seed=number) for number, size in enumerate(SIZES)]


def processed(name: str, images: Any, **kwargs: Any) -> dict[str, Any]:
    made = getattr(transformers, name)(**PROCESSORS[name])(images, return_tensors="pt", **kwargs)
    return dict(made)


def opened() -> list[Image.Image]:
    return [Image.open(BytesIO(file)) for file in FILES]


@pytest.mark.parametrize("name", PROCESSORS)
def test_opened_files(name: str) -> None:
    proven(lambda: processed(name, opened()), images=len(FILES))
    with accel.image_backend("cpu"):
        assert helpers.is_lazy(processed(name, opened())["pixel_values"])


def kinds() -> dict[str, Callable[[], Any]]:
    tensors = [torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1) for image in opened()]
    return {
        "one": lambda: opened()[0],
        "pictures in memory": lambda: [image.copy() for image in opened()],
        "tensors, planar": lambda: [tensor.contiguous() for tensor in tensors],
        "tensors, interleaved": lambda: tensors,
        "a batch": lambda: torch.stack([tensors[0], tensors[0].flip(1)]),
        "floats": lambda: [tensor / 255 for tensor in tensors],
        "arrays": lambda: [np.asarray(image) for image in opened()],
        "decoded": lambda: [decoded(file) for file in FILES],
        "grey": lambda: [Image.open(BytesIO(helpers.jpeg(80, 60, "L"))), *opened()],
        "see-through": lambda: [helpers.picture(60, 80).convert("RGBA"), see_through(), *opened()],
        "palette": lambda: [helpers.picture(60, 80).convert("P"), *opened()],
    }


def decoded(file: bytes) -> torch.Tensor:
    return decode_image(torch.frombuffer(bytearray(file), dtype=torch.uint8))


def see_through() -> Image.Image:
    image = helpers.picture(60, 80)
    image.info["transparency"] = image.getpixel((3, 3))
    return image


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("name", ["CLIPImageProcessor", "ViTImageProcessor"])
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable", "ignore:The image decoding")
def test_kinds_of_images(kind: str, name: str) -> None:
    images = kinds()[kind]
    if name == "ViTImageProcessor" and kind in ("grey", "see-through", "palette"):
        expected = helpers.outcome(processed, name, images())
        with accel.image_backend("cpu"):
            assert type(helpers.outcome(processed, name, images())) is type(expected)
        return
    helpers.assert_equal_runs(lambda: processed(name, images()))
