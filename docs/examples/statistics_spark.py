"""Spark: mean and deviation of a folder's photos, as Normalize takes them. The function itself sets the backend.

PYSPARK_PYTHON=$(which python) spark-submit statistics_spark.py FOLDER
"""

import sys
from pathlib import Path

import torch
from PIL import Image
from pyspark.sql import SparkSession
from torchvision import transforms as T

STEPS = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])


def sums(files: list[str]) -> tuple[torch.Tensor, str]:
    """Sums of values and of their squares by channel, float64 [2, 3], and the backend: of a batch, computed as one."""
    import accel  # in the worker, which Java has started: the driver's switch does not reach it

    accel.set_image_backend("cpu", threads=1)
    images = torch.stack([STEPS(Image.open(file).convert("RGB")) for file in files]).double()
    return torch.stack([images.mean((2, 3)).sum(0), (images**2).mean((2, 3)).sum(0)]), accel.get_image_backend()


def main() -> None:
    files = sorted(map(str, Path(sys.argv[1]).rglob("*.jpg")))
    batches = [files[start : start + 64] for start in range(0, len(files), 64)]
    spark = SparkSession.builder.getOrCreate()
    found = spark.sparkContext.parallelize(batches, len(batches)).map(sums).collect()
    spark.stop()
    mean, square = sum(each for each, _ in found) / len(files)
    print(*{backend for _, backend in found}, mean.tolist(), (square - mean**2).sqrt().tolist(), sep="\n")


if __name__ == "__main__":
    main()
