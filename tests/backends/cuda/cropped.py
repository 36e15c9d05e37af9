"""Rows of small files, their values, and what is said of damaged ones."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

from accel.errors import DecodeError
from accel.recipes.recipe import Source
from accel.recipes.rows import Form, Rows, Slot, Structure
from accel.runtime import compute
from tests.support import helpers

SIZES = [(90, 61), (200, 175), (33, 48), (64, 64), (16, 9), (120, 40)]
FILES = [*(helpers.jpeg(*size) for size in SIZES), helpers.jpeg(50, 70, "L"), helpers.jpeg(40, 60, progressive=True)]
COLOUR = [data for data, size in zip(FILES, SIZES, strict=False) if size != (16, 9)]
DAMAGED = [*COLOUR[:3], helpers.undecodable(), FILES[1][: len(FILES[1]) // 2] + b"\xff\xd9", *COLOUR[3:]]
"""Files of which the fourth cannot be decoded."""
HOST = torch.device("cpu")
CROP = Structure.of(
    Form("crop", (Slot(0), 2, 9, 9)),
    Form("resize", (12, 12, 2)),
    Form("hflip", (), 1),
    Form("to_tensor", (torch.float32,)),
)


def sources(files: list[bytes], key: Any = None) -> list[Source]:
    found = [F.pil_to_tensor(Image.open(BytesIO(data))).lazy.recipes[0].source for data in files]
    return [
        Source(each.data, each.header, f"number {n}", each.selection, key=key and (*key, n))
        for n, each in enumerate(found)
    ]


def cropped(files: list[bytes], key: Any = None) -> Rows:
    return Rows(sources(files, key), CROP, np.array([(0, n % 2) for n in range(len(files))]))


def values(recipes: Any, interleaved: bool = False) -> torch.Tensor:
    return compute.tensors_on(HOST, recipes, interleaved=interleaved)


def outcome(recipes: Any) -> str:
    """What is said of the damaged files' recipes."""
    with pytest.raises(DecodeError) as caught:
        values(recipes)
    assert caught.value.position == 3
    return str(caught.value)
