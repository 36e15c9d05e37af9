"""Images for workloads that are made for the run, the same every time."""

from __future__ import annotations

import numpy as np
from PIL import Image

from accel.cli import samples
from bench.job import Images
from bench.workload import Setting


def jpegs(setting: Setting, size: tuple[int, int], count: int) -> Images:
    """``count`` JPEG files of that (width, height), made at their first use."""
    files = []
    for number in range(count):
        file = setting.scratch / f"{size[0]}x{size[1]}-{number}.jpg"
        if not file.exists():
            samples.picture(number, size).save(file, "JPEG", quality=90, subsampling=2)
        files.append(str(file))
    return Images(files=files)


def small_pixels(count: int) -> Images:
    """Images of 32 x 32 in memory, as CIFAR-10's dataset holds them."""
    pictures = [samples.picture(number, (64, 64)).resize((32, 32), Image.Resampling.BOX) for number in range(64)]
    return Images(pixels=[np.array(pictures[number % 64]) for number in range(count)])
