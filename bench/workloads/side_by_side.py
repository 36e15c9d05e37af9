"""The workloads in which contestants make the same batches side by side, each on one core unless stated otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

from accel.cli import samples
from bench.contestants.scripts import AccelTensors, Tensors
from bench.pipelines import Images
from bench.workload import Setting, side_by_side


def jpegs(setting: Setting, size: tuple[int, int], count: int) -> Images:
    """``count`` JPEG files of this (width, height), made at first use."""
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


def _jpegs(width: int, height: int, count: int) -> Callable[[Setting], Images]:
    return lambda setting: jpegs(setting, (width, height), count)


def pngs(setting: Setting) -> Images:
    """The first photos as PNG files, made at first use."""
    files = []
    for number, photo in enumerate(setting.photos.files[:40]):
        file = setting.scratch / f"{number}.png"
        if not file.exists():
            Image.open(photo).convert("RGB").save(file)
        files.append(str(file))
    return Images(files=files)


PHOTOS = (
    side_by_side("train", "ImageNet train pipeline on photos, one core"),
    side_by_side("eval", "ImageNet eval pipeline on photos, one core"),
)
TENSORS = side_by_side(  # its arithmetic is torch's and not Pillow's
    "train_v2",
    "train pipeline in transforms.v2 after ToImage() on photos, one core",
    "train",
    who=(Tensors(), AccelTensors()),
)
ONE = "latency of one image: JPEG of 500 x 375, train pipeline, batches of one (DVPP's published figure)"
MANY = "one batch of 512: JPEG files of 500 x 375, train pipeline, all cores (DVPP's published figure)"
_LARGE = _jpegs(4000, 3000, 4)
SIZES = (
    side_by_side("latency", ONE, "train", _jpegs(500, 375, 1), batch_size=1, epoch=100),
    side_by_side("batch512", MANY, "train", _jpegs(500, 375, 64), batch_size=512, epoch=512, most=None, rounds=3),
    side_by_side(
        "large_train", "train pipeline on large photos (4000 x 3000), one core", "train", _LARGE, batch_size=4, epoch=8
    ),
    side_by_side(
        "large_eval", "eval pipeline on large photos (4000 x 3000), one core", "eval", _LARGE, batch_size=4, epoch=4
    ),
)
SMALL = "small images in memory (32 x 32, as CIFAR-10): pad, random crop, flip, normalise, one core"
BOXES = "detection: images of different sizes and their boxes, short side to 480, flip, normalise, one core"
OTHERS = (
    side_by_side("cifar", SMALL, images=lambda setting: small_pixels(2000), batch_size=250),
    side_by_side("png", "train pipeline on PNG files, one core", images=pngs, batch_size=20),
    side_by_side("jitter", "train pipeline with ColorJitter(0.4, 0.4, 0.4, 0.1), one core"),
    side_by_side("randaugment", "train pipeline with RandAugment, one core"),
    side_by_side("trivialaugment", "train pipeline with TrivialAugmentWide, one core"),
    side_by_side("detection", BOXES, batch_size=8),
    side_by_side("decode", "decoding photos, whole, one core"),
)
