"""Checks that a decoder's pixels equal those of the installed Pillow, on a few small streams that Pillow writes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

from accel.codec import engines
from accel.codec.engines import Box, Data, Pixels
from accel.system import counters

BOXES: tuple[Box, ...] = ((0, 0, 43, 57), (7, 9, 21, 33), (0, 0, 43, 1), (0, 56, 43, 1))


def streams() -> Iterator[tuple[bytes, int]]:
    """Yield JPEG files of 43 x 57 pixels, one for each sampling that Pillow writes, with their numbers of channels."""
    for mode, subsampling in (("RGB", 0), ("RGB", 1), ("RGB", 2), ("L", 0)):
        ramp = np.add.outer(np.arange(43) * 5, np.arange(57) * 3)
        picture = np.stack([ramp, ramp.T[:1].repeat(43, 0).repeat(2, 1)[:, :57] ^ ramp, 255 - ramp], 2)
        image = Image.fromarray((picture % 256).astype(np.uint8)).convert(mode)
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=83, subsampling=subsampling)
        yield stream.getvalue(), len(mode)


def agrees(name: str, decode: Callable[[Data, Box, int], Pixels | None]) -> bool:
    """Whether a decoder, a function like those of ``engines``, equals Pillow; if not, it is counted under its name."""
    for data, channels in streams():
        for box in BOXES:
            expected, found = engines.pillow(data, box, channels), decode(data, box, channels)
            if found is None or expected is None or not np.array_equal(found, expected):
                counters.fallback(f"{name} disagrees with the installed Pillow and is not used")
                return False
    return True
