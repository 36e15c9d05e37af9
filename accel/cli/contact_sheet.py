"""A contact sheet: torchvision's image, accel's, and their difference, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from PIL import Image, ImageDraw
from torchvision.transforms import functional as F

GAIN = 32
"""The factor that differences are multiplied by, so that one level can be seen."""

_WIDTH, _HEIGHT, _TEXT, _MARGIN = 240, 200, 14, 6


class Pictures(NamedTuple):
    """A row of the sheet: tensors [C, H, W], C 1 or 3, uint8 or floats; their largest difference in levels of uint8."""

    file: str
    pipeline: str
    expected: torch.Tensor
    found: torch.Tensor
    highest: float


def make(rows: Sequence[Pictures], backend: str) -> Image.Image:
    """Make the sheet, with one row below the other."""
    height = _TEXT + _MARGIN + len(rows) * (_HEIGHT + _TEXT + _MARGIN)
    page = Image.new("RGB", (3 * (_WIDTH + _MARGIN) + _MARGIN, height), "white")
    draw = ImageDraw.Draw(page)
    for column, title in enumerate(("torchvision", f"accel, {backend}", f"difference x {GAIN}")):
        draw.text((_MARGIN + column * (_WIDTH + _MARGIN), 2), title, fill="black")
    for number, row in enumerate(rows):
        top = _TEXT + _MARGIN + number * (_HEIGHT + _TEXT + _MARGIN)
        draw.text((_MARGIN, top), f"{row.file}: {row.pipeline}: at most {row.highest:.4g} levels", fill="black")
        for column, picture in enumerate(pictures(row)):
            page.paste(_fit(picture), (_MARGIN + column * (_WIDTH + _MARGIN), top + _TEXT))
    return page


def pictures(row: Pictures) -> tuple[Image.Image, Image.Image, Image.Image]:
    """The three pictures of a row at their own size; floats are scaled by the range of the reference's values."""
    expected, found = row.expected.double(), row.found.double()
    apart = (expected - found).abs() * GAIN
    if row.expected.is_floating_point():
        lowest = expected.min()
        scale = 255 / (expected.max() - lowest).clamp(min=1e-9)
        expected, found, apart = (expected - lowest) * scale, (found - lowest) * scale, apart * 255
    return _picture(expected), _picture(found), _picture(apart)


def _picture(values: torch.Tensor) -> Image.Image:
    levels = values.round().clamp(0, 255).to(torch.uint8)
    return F.to_pil_image(levels[: 3 if len(levels) >= 3 else 1]).convert("RGB")  # type: ignore[no-any-return]


def _fit(picture: Image.Image) -> Image.Image:
    """A picture resized to its place on the sheet; when it is enlarged, single pixels stay visible."""
    scale = min(_WIDTH / picture.width, _HEIGHT / picture.height)
    size = max(round(picture.width * scale), 1), max(round(picture.height * scale), 1)
    return picture.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX)
