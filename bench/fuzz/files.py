"""Intact image files of all kinds, made for the run: by Pillow, and JPEG files that no usual encoder writes."""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from bench.fuzz.coder import SAMPLINGS, UNEQUAL, Coder, random_blocks, scans
from bench.fuzz.segments import JFIF, adobe

Pixels = npt.NDArray[np.uint8]

KINDS = ("smooth", "noise", "stripes", "binary", "flat")
IDENTIFIERS = [(1, 2, 3), (0, 1, 2), (82, 71, 66), (66, 71, 82), (1, 1, 2), (255, 0, 128)]
FACTORS = [
    *SAMPLINGS,
    *UNEQUAL,
    *([factors] * 3 for factors in ((2, 2), (2, 1))),
    *([factors, (1, 1), (1, 1)] for factors in ((3, 3), (4, 4))),
    *([factors, (2, 1), (1, 1)] for factors in ((3, 1), (1, 1), (2, 2), (4, 1))),
    [(1, 1), (1, 1), (2, 2)],
    [(2, 2), (2, 1), (2, 1)],
]
LENGTHS = [(8,) * 162, (2, 3, 4, *(16,) * 159), (16,) * 162, (1, *(9,) * 20, *(13,) * 141), (2, 2, *(9,) * 160)]


def picture(kind: str, height: int, width: int, channels: int = 3, seed: int = 0) -> Pixels:
    """uint8[height, width, channels]; [height, width] for one channel."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width][..., None] / 7.0
    phase = np.arange(channels)
    pixels: npt.NDArray[Any]
    if kind == "smooth":
        pixels = 128 + 60 * np.sin(x + phase) + 60 * np.cos(y * (phase + 1) / 2) + rng.normal(0, 4, (height, width, 1))
    elif kind == "noise":
        pixels = rng.integers(0, 256, (height, width, channels))
    elif kind == "stripes":
        pixels = 255 * ((np.mgrid[:height, :width].sum(0)[..., None] // (phase + 1)) % 2)
    elif kind == "binary":
        pixels = 255 * rng.integers(0, 2, (height, width, channels))
    else:
        pixels = np.broadcast_to(np.array([17, 200, 90, 140])[:channels], (height, width, channels))
    pixels = np.clip(pixels, 0, 255).astype(np.uint8)
    return pixels[..., 0] if channels == 1 else pixels


def encode(pixels: Pixels, format: str = "JPEG", mode: str | None = None, **options: Any) -> bytes:
    file = BytesIO()
    image = Image.fromarray(pixels) if mode is None else Image.frombytes(mode, pixels.shape[1::-1], pixels.tobytes())
    image.save(file, format, **options)
    return file.getvalue()


def pillow(data: bytes) -> Pixels:
    """Decode a file by Pillow: uint8[height, width, channels]."""
    with Image.open(BytesIO(data)) as image:
        pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def exif(orientation: int = 6) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    tags[0x010F] = "accel"
    return tags.tobytes()


def intact(rng: random.Random) -> bytes:
    """A file, mostly JPEG, of 1 to 90 rows and columns; sometimes with more blocks in an MCU than libjpeg takes."""
    return rng.choices((_usual, _odd, _progressive, _other), (45, 30, 15, 10))[0](rng)


def _size(rng: random.Random) -> tuple[int, int]:
    return rng.choice((rng.randint(1, 90), rng.randint(1, 17))), rng.choice((rng.randint(1, 90), rng.randint(1, 17)))


def _usual(rng: random.Random) -> bytes:
    """A JPEG file written by Pillow, with any of its options."""
    options: dict[str, Any] = {"quality": rng.choice((1, 5, 30, 75, 95, 100)), "optimize": rng.random() < 0.3}
    options["progressive"] = rng.random() < 0.2
    options |= rng.choice(({}, {"restart_marker_blocks": rng.choice((1, 2, 5, 65535))}, {"restart_marker_rows": 1}))
    options |= rng.choice(({}, {}, {"exif": exif(rng.randint(1, 8))}, {"icc_profile": b"profile" * 30}))
    options |= rng.choice(({}, {}, {"comment": b"a comment"}, {"dpi": (72, 72)}))
    channels = rng.choice((1, 3, 3, 3, 3, 3, 4))
    if channels == 3:
        options |= rng.choice(({}, {"keep_rgb": True}, *({"subsampling": n} for n in range(3))))
    kind, mode = ("smooth", "CMYK") if channels == 4 else (rng.choice(KINDS), None)
    return encode(picture(kind, *_size(rng), channels, rng.randrange(1000)), mode=mode, **options)


def _components(rng: random.Random) -> list[tuple[int, int, int]]:
    factors = rng.choice(FACTORS) if rng.random() < 0.85 else [rng.choice(((1, 1), (2, 2), (1, 2), (3, 1)))]
    return [(i, h, v) for i, (h, v) in zip(rng.choice(IDENTIFIERS), factors, strict=False)]


def _colour(rng: random.Random) -> bytes:
    return rng.choice((b"", JFIF, *map(adobe, (0, 1, 2, 3, 255)), JFIF + adobe(0), adobe(0) + adobe(1)))


def _odd(rng: random.Random) -> bytes:
    """A baseline file with any sampling, identifiers, codes and quantisers."""
    wide = rng.random() < 0.3
    quant = rng.choice((1, 255, 256, 1000, 8191, 8192, 65535) if wide else (1, 1, 2, 7, 33, 200))
    spread = max(min(rng.choice((5, 40, 300)), 1000 / quant), 2)
    blocks = random_blocks(rng.randint(3, 60), rng.randrange(1 << 30), spread, rng.choice((0.02, 0.1, 0.3, 0.9)))
    coder = Coder(rng.choice(LENGTHS))
    return coder.file(_size(rng), _components(rng), blocks, extra=_colour(rng), quant=quant, wide=wide)


def _progressive(rng: random.Random) -> bytes:
    """A progressive file with any sampling and script of scans."""
    components = _components(rng)
    blocks = random_blocks(rng.randint(3, 30), rng.randrange(1 << 30), rng.choice((5, 40)), rng.choice((0.1, 0.3)))
    coder, script = Coder(rng.choice(LENGTHS)), scans(rng, len(components))
    restart = rng.choice((0, 0, 0, 1, 3))
    return coder.file(
        _size(rng), components, blocks, script, extra=_colour(rng), quant=rng.choice((1, 2, 7)), restart=restart
    )


def _other(rng: random.Random) -> bytes:
    """A file of another format, or a JPEG file with several pictures."""
    pixels = picture(rng.choice(KINDS), *_size(rng), rng.choice((1, 3)), rng.randrange(1000))
    format = rng.choice(("PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "MPO"))
    several: dict[str, Any] = {"save_all": True, "append_images": [Image.fromarray(pixels)]}
    return encode(pixels, format, **{"WEBP": {"lossless": True}, "MPO": several}.get(format, {}))
