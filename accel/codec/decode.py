"""Regions of sources on the host: of JPEG files, decoded by the engine that suits the file best, or of raw pixels.

The engine depends on the file's header and on what is installed, never on timing. A file that an engine declines is
left to Pillow, which decides whether it is broken; that is counted, and logged once.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image

from accel.codec import agreement, arrow, engines, jpeg
from accel.codec.engines import Box, Data, Pixels
from accel.codec.header import Header, Raw
from accel.errors import DecodeError, TorchvisionDecodeError
from accel.system import counters

UNITS = (jpeg.UNIT, arrow.UNIT)
"""The compiled units that most pictures need."""

ENGINES = ("auto", "accel", "pillow")
"""Engines that may be asked for; "auto" and "accel": accel's own decoder for baseline files, Pillow for all others."""


def decode(
    data: Data,
    header: Header | Raw,
    box: Box,
    channels: int,
    engine: str = "auto",
    index: jpeg.Index | None = None,
    out: Pixels | None = None,
    name: str | None = None,
) -> Pixels:
    """The pixels of ``box`` (top, left, height, width), uint8 [height, width, channels], equal to the reference's.

    ``index``: the file's stream index from earlier decodes, to which this one adds (``jpeg.Index``); None: none is
    wanted. ``out``: memory of the result's shape that may be used for it. ``name``: the file's, for messages.

    Raises:
        DecodeError: the reference decoder (Pillow) cannot decode the file either; the message is its own.
    """
    if index is not None:
        index.begin()
    if isinstance(header, Raw):
        return raw(data, header, box, channels)
    chosen = choose(header, engine)
    if chosen != header.reference:
        pixels = decoded(data, box, channels, chosen, index, out)
        if pixels is not None:
            return pixels
        counters.fallback(f"{chosen} declined a JPEG; {_NAMES[header.reference]} decoded it", name)
    try:
        return getattr(engines, header.reference)(data, box, channels)  # type: ignore[no-any-return]
    except Exception as error:
        raise _ERRORS[header.reference](str(error) or type(error).__name__) from error


def decoded(
    data: Data, box: Box, channels: int, chosen: str, index: jpeg.Index | None = None, out: Pixels | None = None
) -> Pixels | None:
    """The pixels by one engine; None if it declines the file."""
    if chosen == "accel":
        return engines.accel(data, box, channels, index, out)
    return getattr(engines, chosen)(data, box, channels)  # type: ignore[no-any-return]


_NAMES = {"pillow": "Pillow", "torchvision": "torchvision"}
_ERRORS = {"pillow": DecodeError, "torchvision": TorchvisionDecodeError}


def one_scan(data: Data, header: Header) -> bool:
    """Whether a baseline file's scan has no markers but restart markers up to its end.

    A decoder of regions does not look behind its region; Pillow reads on, and refuses what it finds there.
    """
    start = header.scan + 2
    start += int.from_bytes(data[start : start + 2], "big")
    return bool(jpeg.first_marker(np.frombuffer(data, np.uint8), start) == 0xD9)  # EOI


def is_plainly_intact(data: Data, header: Header | Raw) -> bool:
    """Whether a file is a complete JPEG file with nothing unusual, judging by its markers: for decoders that cannot
    tell broken files from intact ones."""
    return isinstance(header, Header) and header.ordinary and (header.progressive or one_scan(data, header))


def raw(data: Data, header: Raw, box: Box, channels: int) -> Pixels:
    """A region of raw pixels, uint8 [height, width, channels], C-contiguous: a view of ``data`` if that is possible."""
    return np.ascontiguousarray(view(data, header, box, channels))


def view(data: Data, header: Raw, box: Box, channels: int) -> Pixels:
    return region(np.frombuffer(data, np.uint8).reshape(header.height, header.width, -1), box, channels)


def region(pixels: Pixels, box: Box, channels: int) -> Pixels:
    top, left, height, width = box
    region = pixels[top : top + height, left : left + width]
    if region.shape[2] != channels:  # grey as three equal channels
        region = np.broadcast_to(region, (height, width, channels))
    return region


def choose(header: Header | Raw, engine: str = "auto") -> str:
    """The name of the engine that decodes files with this header; "none" for raw pixels."""
    if isinstance(header, Raw):
        return "none"
    own = header.plain and engine != "pillow" and agrees("accel")
    return "accel" if own else header.reference


def prepare(engine: str = "auto") -> None:
    """Load the decoder of baseline files, and the code that copies pixels, so that forked workers inherit them."""
    choose(Header(8, 8, "RGB"), engine)
    arrow.pixels(Image.new("RGB", (1, 1)))


@cache
def agrees(engine: str) -> bool:
    """Whether an engine's pixels equal those of the installed Pillow; tried once, on a few small streams."""
    return agreement.agrees(engine, getattr(engines, engine))
