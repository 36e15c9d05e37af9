"""The host's JPEG decoders, each a function (data, box, channels) -> pixels, or None if it declines the file.

Pixels are uint8 [height, width, channels], C-contiguous; ``box`` is (top, left, height, width) inside the
picture; 3 channels of a grey file are its values three times over, as Pillow converts "L" to "RGB".
"""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import torch
from PIL.JpegImagePlugin import JpegImageFile

from accel.codec import arrow, jpeg

Pixels = npt.NDArray[np.uint8]
Box = tuple[int, int, int, int]
Data = bytes | memoryview


def accel(
    data: Data, box: Box, channels: int, index: jpeg.Index | None = None, out: Pixels | None = None
) -> Pixels | None:
    """accel's own decoder (``jpeg.decode``), on the region alone, which declines all but plainly intact baseline
    files."""
    return jpeg.decode(data, box, channels=channels, out=out, index=index)


def pillow(data: Data, box: Box, channels: int) -> Pixels | None:
    """Pillow's own decoder, on the whole file: the reference, which also decides what is broken.

    Raises:
        OSError, SyntaxError, ...: whatever Pillow raises for the file.
    """
    with JpegImageFile(io.BytesIO(data)) as image:
        image.load()
        top, left, height, width = box
        copied: bytes | memoryview | None = arrow.region(image, box) if channels == 3 else None
        if copied is None:
            part = image.crop((left, top, left + width, top + height))
            mode = "RGB" if channels == 3 else "L"
            copied = arrow.pixels(part if part.mode == mode else part.convert(mode))
    return np.frombuffer(copied, np.uint8).reshape(height, width, channels)


def torchvision(data: Data, box: Box, channels: int) -> Pixels | None:
    """torchvision's own decoder (its own libjpeg-turbo), on the whole file: the reference for ``torchvision.io``."""
    stream = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
    mode = 3 if channels == 3 else 0  # torchvision.io.ImageReadMode: RGB, UNCHANGED
    pixels: Pixels = torch.ops.image.decode_jpeg(stream, mode, False).permute(1, 2, 0).numpy()
    top, left, height, width = box
    return np.ascontiguousarray(pixels[top : top + height, left : left + width])
