"""Files that accel's JPEG decoder cannot read: decoded whole, by Pillow or torchvision, to pixels of mode "RGB" or "L".

From Pillow it is the first picture in the file, converted by ``convert("RGB")`` if it has another mode than these.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import torch
from PIL import Image

from accel.codec import arrow
from accel.codec.engines import Data
from accel.codec.header import Raw
from accel.errors import DecodeError

FORMATS = ("PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF", "TGA", "AVIF")
"""Pillow's names of the formats whose pixels depend on the file alone."""

PILLOW = "PIL"
_TORCHVISION = {f"torchvision {mode}": value for value, mode in ((0, "UNCHANGED"), (1, "GRAY"), (3, "RGB"))}
DECODERS = (PILLOW, *_TORCHVISION)
"""The values of ``Raw.decoder`` for pixels of files."""


def by_torchvision(mode: str) -> str:
    """The decoder's name for a mode of torchvision.io's; "" for modes whose pixels are of other kinds."""
    name = f"torchvision {mode}"
    return name if name in _TORCHVISION else ""


def of_image(image: Image.Image) -> tuple[Raw, bytes | memoryview, dict[Any, Any]] | None:
    """Load an image: its header, its pixels (RGB or L) and its ``info``; None if it has a transparent colour or no
    pixels.

    Raises:
        Exception: what Pillow raises.
    """
    image.load()
    if "transparency" in image.info or not image.width or not image.height:
        return None
    if image.mode not in ("RGB", "L"):
        image = image.convert("RGB")
    return Raw(*image.size, image.mode, PILLOW), arrow.pixels(image), dict(image.info)


def of_tensor(values: torch.Tensor, decoder: str) -> tuple[Raw, bytes] | None:
    """The header and pixels of torchvision's result; None unless it is uint8 [1 or 3, height, width], interleaved."""
    if values.dtype != torch.uint8 or values.ndim != 3 or values.shape[0] not in (1, 3) or not values.numel():
        return None
    pixels = values.permute(1, 2, 0)
    if not pixels.is_contiguous():
        return None
    channels, height, width = values.shape
    return Raw(width, height, "RGB" if channels == 3 else "L", decoder), pixels.numpy().tobytes()


def opened(data: Data) -> Image.Image:
    """Pillow's image of a file, loaded, and converted to "RGB" unless its mode is "RGB" or "L".

    Raises:
        Exception: what Pillow raises.
    """
    image: Image.Image = Image.open(BytesIO(data))
    image.load()
    return image if image.mode in ("RGB", "L") else image.convert("RGB")


def pixels(data: Data, raw: Raw) -> bytes | memoryview:
    """Decode a file whose pixels had the header ``raw`` before.

    Raises:
        DecodeError: it cannot be decoded, or has another header now.
    """
    try:
        if raw.decoder == PILLOW:
            made: tuple[Any, ...] | None = of_image(opened(data))
        else:
            stream = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            made = of_tensor(torch.ops.image.decode_image(stream, _TORCHVISION[raw.decoder], False), raw.decoder)
    except Exception as error:
        raise DecodeError(f"{type(error).__name__}: {error}") from error
    if made is None or made[0] != raw:
        raise DecodeError("its decoder gives other pixels now")
    found: bytes | memoryview = made[1]
    return found
