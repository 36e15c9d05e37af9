"""Resizing with and without dot products."""

from tests.backends.cpu.kernels import BICUBIC, BILINEAR, LANCZOS
from tests.support.kernels import Array, axis, emitted, no_fills, picture, random_table


def resized() -> list[Array]:
    found = []
    for channels, resample, before, after in ((3, BILINEAR, 301, 224), (1, BICUBIC, 200, 90), (4, LANCZOS, 80, 131)):
        image, table = picture(40, before, channels), random_table(channels, "uint8")
        found.append(emitted(image, axis(40, 33), axis(before, after), resample, no_fills(channels), table, False))
    return found
