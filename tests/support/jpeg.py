"""What the tests of the JPEG decoders share beside bench.fuzz's files: damage, and hypothesis' files."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from bench.fuzz.files import KINDS, encode, picture


def damaged(data: bytes, rng: np.random.Generator, *, header: bool) -> bytes:
    """The file with one small damage, in its scan or before it."""
    changed = bytearray(data)
    scan = data.rindex(b"\xff\xda") + 14
    start, stop = (2, scan) if header else (scan, len(data) - 2)
    at = int(rng.integers(start, stop))
    match rng.integers(4):
        case 0:
            changed[at] ^= 1 << int(rng.integers(8))
        case 1:
            changed[at] = int(rng.integers(256))
        case 2:
            del changed[at : at + int(rng.integers(1, 5))]
        case _:
            changed[at:at] = rng.bytes(int(rng.integers(1, 5)))
    return bytes(changed)


@st.composite
def files_and_boxes(draw: st.DrawFn, largest: int) -> tuple[bytes, tuple[int, int, int, int]]:
    """A file of at most ``largest`` rows and columns, of any of Pillow's encoder settings, and a box inside it."""
    height, width = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    channels = draw(st.sampled_from([1, 3]))
    options: dict[str, Any] = {"quality": draw(st.integers(1, 100)), "optimize": draw(st.booleans())}
    if channels == 3:
        options["subsampling"] = draw(st.integers(0, 2))
    if restart := draw(st.integers(0, 5)):
        options["restart_marker_blocks"] = restart
    pixels = picture(draw(st.sampled_from(KINDS)), height, width, channels, draw(st.integers(0, 99)))
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    box = (top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left)))
    return encode(pixels, **options), box
