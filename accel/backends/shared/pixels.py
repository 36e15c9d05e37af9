"""Running ops on arrays of pixels by the installed Pillow and torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from accel.ops import OPS
from accel.ops.row import Params
from accel.processes.switch import image_backend
from accel.system import arithmetic

Pixels = npt.NDArray[np.uint8]


def by_pillow(pixels: Pixels, name: str, params: Params) -> Pixels:
    """The reference result of an op on pixels [height, width, channels]."""
    with image_backend("torchvision"), arithmetic.as_recorded():
        result = np.asarray(OPS[name].reference(image_of(pixels), params))
    return np.ascontiguousarray(result.reshape(*result.shape[:2], -1))


def image_of(pixels: Pixels) -> Any:
    """Pixels [height, width, 1 or 3] as a Pillow image."""
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
