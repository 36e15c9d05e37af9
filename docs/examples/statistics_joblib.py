"""joblib: mean and deviation of a folder's photos, as Normalize takes them. joblib's workers get the switch.

python statistics_joblib.py FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from PIL import Image
from torchvision import transforms as T

import accel

STEPS = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])


def sums(files: list[str]) -> tuple[torch.Tensor, str]:
    """Sums of values and of their squares by channel, float64 [2, 3], and the backend: of a batch, computed as one."""
    images = torch.stack([STEPS(Image.open(file).convert("RGB")) for file in files]).double()
    return torch.stack([images.mean((2, 3)).sum(0), (images**2).mean((2, 3)).sum(0)]), accel.get_image_backend()


def main() -> None:
    accel.set_image_backend("cpu", threads=1)  # before joblib's first worker starts; there is one for each core
    files = sorted(map(str, Path(sys.argv[1]).rglob("*.jpg")))
    batches = [files[start : start + 64] for start in range(0, len(files), 64)]
    found: list[Any] = Parallel(n_jobs=-1)(delayed(sums)(batch) for batch in batches)
    mean, square = sum(each for each, _ in found) / len(files)
    print(*{backend for _, backend in found}, mean.tolist(), (square - mean**2).sqrt().tolist(), sep="\n")


if __name__ == "__main__":
    main()
