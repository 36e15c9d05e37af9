"""Damaged image files of every kind, by name; and the ways to read one."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from torchvision import io
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

from accel import functional
from tests.support import helpers

GOOD = helpers.jpeg(64, 48)
PROGRESSIVE = helpers.jpeg(64, 48, progressive=True)


def header_at(data: bytes) -> int:
    """The position of the frame header's height."""
    position = 2
    while data[position + 1] not in (0xC0, 0xC2):
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return position + 5


def sized(data: bytes, height: int, width: int) -> bytes:
    """The file with another size in its header."""
    position = header_at(data)
    return data[:position] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[position + 4 :]


def scan_at(data: bytes) -> int:
    """Where the entropy-coded bytes begin."""
    position = data.index(b"\xff\xda")
    return position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "text": b"this is no picture\n" * 20,
    "only-soi": b"\xff\xd8\xff",
    "soi-eoi": b"\xff\xd8\xff\xd9",
    "zeros": bytes(1000),
    "no-tables": helpers.undecodable(),
    "no-eoi": GOOD[:-2],
    "half-eoi": GOOD[:-1],
    "half": GOOD[: len(GOOD) // 2],
    "half-with-eoi": GOOD[: len(GOOD) // 2] + b"\xff\xd9",
    "header-with-eoi": GOOD[: scan_at(GOOD)] + b"\xff\xd9",
    "progressive-half-with-eoi": PROGRESSIVE[: len(PROGRESSIVE) // 2] + b"\xff\xd9",
    "progressive-half": PROGRESSIVE[: len(PROGRESSIVE) // 2],
    "trailing": GOOD + b"trailing bytes" * 9,
    "trailing-after-cut": GOOD[:-2] + b"trailing bytes" * 9,
    "cut-then-another": GOOD[: len(GOOD) // 2] + GOOD,
    "twice": GOOD + GOOD,
    "higher": sized(GOOD, 96, 64),
    "wider": sized(GOOD, 48, 128),
    "lower": sized(GOOD, 24, 64),
    "narrower": sized(GOOD, 48, 30),
    "odd": sized(GOOD, 47, 63),
    "no-height": sized(GOOD, 0, 64),
    "no-width": sized(GOOD, 48, 0),
    "huge": sized(GOOD, 3000, 4000),
    "progressive-higher": sized(PROGRESSIVE, 96, 64),
}


def saved(format: str, mode: str = "RGB", **options: Any) -> bytes:
    stream = BytesIO()
    helpers.picture(64, 48, mode).save(stream, format, **options)
    return stream.getvalue()


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def wrong_byte(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 255]) + data[position + 1 :]


TIFF = saved("TIFF", compression="tiff_lzw")
MARKER_INSIDE = GOOD[: len(GOOD) * 2 // 3] + b"\xff\xae" + GOOD[len(GOOD) * 2 // 3 :]

SIZED: dict[str, bytes] = {
    **{kind: BROKEN[kind] for kind in ("half", "no-eoi", "progressive-half", "no-tables")},
    "marker-inside": MARKER_INSIDE,
    "cmyk-half": half(saved("JPEG", "CMYK")),
    "png-half": half(saved("PNG")),
    "png-palette-half": half(saved("PNG", "P")),
    "png-alpha-half": half(saved("PNG", "RGBA")),
    "png-checksum": wrong_byte(saved("PNG"), len(saved("PNG")) - 200),
    "bmp-half": half(saved("BMP")),
    "tiff-strip": TIFF[:8] + bytes(4000) + TIFF[4008:],
    "gif-half": half(saved("GIF")),
}
"""Files that say how large their pictures are, 64 x 48, and that Pillow refuses."""

UNSIZED: dict[str, bytes] = {
    **{kind: BROKEN[kind] for kind in ("empty", "text", "zeros", "only-soi", "no-height")},
    "short-header": GOOD[:100],
    "short-scan-header": GOOD[: GOOD.index(b"\xff\xda") + 5],
    "png-header": saved("PNG")[:20],
    "png-size": wrong_byte(saved("PNG"), 19),
    "gif-header": saved("GIF")[:8],
    "webp-half": half(saved("WEBP")),
    "tiff-half": half(TIFF),
    "bomb": sized(GOOD, 65_500, 65_500),
}
"""Files that Pillow cannot open, or not for their size."""

KINDS = SIZED | UNSIZED
NOT_FOR_TORCHVISION = ("png-checksum", "bomb")  # it crashes, or has no limit


def opened(path: Path) -> Any:
    with Image.open(path) as image:  # Pillow leaves the file of a broken image open
        return F.pil_to_tensor(image.convert("RGB"))


PILLOW: dict[str, Callable[[Path], Any]] = {
    "loader": lambda path: F.pil_to_tensor(default_loader(str(path))),
    "open": opened,
    "functional": lambda path: F.pil_to_tensor(functional.decode(path, "RGB")),
}
TORCHVISION: dict[str, Callable[[Path], Any]] = {
    "read_image": lambda path: io.read_image(str(path), "RGB"),
    "decode_image": lambda path: io.decode_image(io.read_file(str(path)), "RGB"),
    "decode_jpeg": lambda path: io.decode_jpeg(io.read_file(str(path)), "RGB"),
}
READERS = PILLOW | TORCHVISION
READINGS = {
    kind: [reader for reader in READERS if reader in PILLOW or kind not in NOT_FOR_TORCHVISION] for kind in KINDS
}
"""Kinds of damage, each with the readers that can be tried on it."""


def failure(read: Callable[[Path], Any], path: Path) -> tuple[Exception | None, bool]:
    """The error of reading a file, and whether it came at once."""
    try:
        values = read(path)
    except Exception as error:
        return error, True
    try:
        _ = values + 0
    except Exception as error:
        return error, False
    return None, False
