"""The workloads in which contestants make the same batches side by side, each on one core unless it says so."""

from __future__ import annotations

from bench import images
from bench.workload import side_by_side

LATENCY = side_by_side(
    "latency",
    "latency of one image: JPEG of 500 x 375, train pipeline, batches of one (DVPP's published figure)",
    "train",
    lambda setting: images.jpegs(setting, (500, 375), 1),
    batch_size=1,
    epoch=100,
)
BATCH = side_by_side(
    "batch512",
    "one batch of 512: JPEG files of 500 x 375, train pipeline, all cores (DVPP's published figure)",
    "train",
    lambda setting: images.jpegs(setting, (500, 375), 64),
    batch_size=512,
    epoch=512,
    cores=None,
    rounds=3,
)
TRAIN = side_by_side("train", "ImageNet train pipeline on photos, one core", "train", images.photos)
EVAL = side_by_side("eval", "ImageNet eval pipeline on photos, one core", "eval", images.photos)
DECODE = side_by_side("decode", "decoding photos, whole, one core", "decode", images.photos)
LARGE_TRAIN = side_by_side(
    "large_train",
    "train pipeline on large photos (4000 x 3000), one core",
    "train",
    lambda setting: images.jpegs(setting, (4000, 3000), 4),
    batch_size=4,
    epoch=8,
)
LARGE_EVAL = side_by_side(
    "large_eval",
    "eval pipeline on large photos (4000 x 3000), one core",
    "eval",
    lambda setting: images.jpegs(setting, (4000, 3000), 4),
    batch_size=4,
    epoch=4,
)
CIFAR = side_by_side(
    "cifar",
    "small images in memory (32 x 32, as CIFAR-10): pad, random crop, flip, normalise, one core",
    "cifar",
    lambda setting: images.small_pixels(2000),
    batch_size=250,
)
JITTER = side_by_side(
    "jitter", "train pipeline with ColorJitter(0.4, 0.4, 0.4, 0.1), one core", "jitter", images.photos
)
RANDAUGMENT = side_by_side("randaugment", "train pipeline with RandAugment, one core", "randaugment", images.photos)
TRIVIALAUGMENT = side_by_side(
    "trivialaugment", "train pipeline with TrivialAugmentWide, one core", "trivialaugment", images.photos
)
DETECTION = side_by_side(
    "detection",
    "detection: images of different sizes and their boxes, short side to 480, flip, normalise, one core",
    "detection",
    images.photos,
    batch_size=8,
)
