"""Dask: mean and deviation of a folder's photos, as Normalize takes them, on this machine or on a cluster.

python statistics_dask.py FOLDER [SCHEDULER]
"""

import sys
from pathlib import Path
from typing import Any

import torch
from distributed import Client
from PIL import Image
from torchvision import transforms as T

import accel

STEPS = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])


def sums(files: list[str]) -> tuple[torch.Tensor, str]:
    """Sums of values and of their squares by channel, float64 [2, 3], and the backend: of a batch, computed as one."""
    images = torch.stack([STEPS(Image.open(file).convert("RGB")) for file in files]).double()
    return torch.stack([images.mean((2, 3)).sum(0), (images**2).mean((2, 3)).sum(0)]), accel.get_image_backend()


def main() -> None:
    accel.set_image_backend("cpu", threads=1)  # workers that the next line starts get it
    client: Any = Client(sys.argv[2]) if len(sys.argv) > 2 else Client(threads_per_worker=1)
    if client.cluster is None:  # the scheduler's workers were there before
        client.register_worker_callbacks(setup=lambda: accel.set_image_backend("cpu", threads=1))
    files = sorted(map(str, Path(sys.argv[1]).rglob("*.jpg")))
    found = client.gather(client.map(sums, [files[start : start + 64] for start in range(0, len(files), 64)]))
    client.close()
    mean, square = sum(each for each, _ in found) / len(files)
    print(*{backend for _, backend in found}, mean.tolist(), (square - mean**2).sqrt().tolist(), sep="\n")


if __name__ == "__main__":
    main()
