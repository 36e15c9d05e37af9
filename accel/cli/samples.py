"""JPEG files to try and measure with if the user has none, the same every time.

They resemble photos in everything that takes a decoder time: sizes, subsampling and about half a byte per pixel, spread
over smooth and busy regions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

COUNT = 160
"""The number of pictures that ``write`` makes by default."""

_CLASSES = ("bark", "cloud", "moss", "sand")
_SIZES = ((500, 375), (375, 500), (500, 333), (500, 375), (333, 500), (500, 375), (641, 427), (299, 301))
_SCALES = (64, 32, 16, 8, 4, 2, 1)
_QUALITY = 92


def write(folder: Path, count: int = COUNT, on_image: Callable[[], None] = lambda: None) -> None:
    """Write ``count`` JPEG files below ``folder``, as an ImageFolder tree.

    Args:
        on_image: called after each file.
    """
    for name in _CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for index in range(count):
        subsampling = "4:4:4" if index % 5 == 1 else "4:2:2" if index % 11 == 3 else "4:2:0"
        image = picture(index, _SIZES[index % len(_SIZES)], "L" if index % 16 == 7 else "RGB")
        path = folder / _CLASSES[index % len(_CLASSES)] / f"{index:04d}.jpg"
        image.save(path, "JPEG", quality=_QUALITY, subsampling=subsampling)
        on_image()


def picture(seed: int, size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    """A picture of ``size`` (width, height): noise at every scale, busy in some regions, over a gradient."""
    rng = np.random.default_rng(seed)
    octaves = [_noise(rng, size, scale) for scale in _SCALES]
    light = np.linspace(-40, 40, size[1], dtype=np.float32)[:, None] * rng.uniform(-1, 1)
    busy = 1 / (1 + np.exp(-3 * octaves[0] - 2 * octaves[1]))  # 0 as in a sky, 1 as in foliage
    light = light + 40 * octaves[0] + 20 * octaves[1] + 30 * np.sign(octaves[1] + octaves[2] / 2) * busy
    for scale, octave in zip(_SCALES[2:], octaves[2:], strict=True):
        light = light + (10 + 34 * busy) * (scale / 16) ** 0.35 * octave
    if mode == "L":
        return Image.fromarray(_bytes(light + 118))
    warmth, tint = (30 * _noise(rng, size, 64) + 8 * _noise(rng, size, 8) for _ in range(2))
    return Image.fromarray(_bytes(np.stack([light + warmth + 124, light + 117, light + tint + 104], axis=2)))


def _noise(rng: np.random.Generator, size: tuple[int, int], scale: int) -> npt.NDArray[np.float32]:
    """Smooth noise around 0 whose features are about ``scale`` pixels wide."""
    width, height = size
    grid = rng.standard_normal((height // scale + 2, width // scale + 2), np.float32)
    if scale == 1:
        return grid[:height, :width]
    return np.asarray(Image.fromarray(grid).resize(size, Image.Resampling.BICUBIC))


def _bytes(values: npt.NDArray[np.float32] | npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    return np.clip(values, 0, 255).astype(np.uint8)
