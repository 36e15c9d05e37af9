"""``exact=False``: how far the device's decoder is from Pillow, over the photos and files of every kind."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.cli import samples
from accel.cli.error_stats import ErrorStats
from accel.cli.harness import computed
from bench.gpu.setting import Setting

KINDS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "grey": {},
}
SIZES = ((375, 500), (401, 333), (64, 48), (1080, 1920))


def measure(setting: Setting) -> dict[str, Any]:
    """The largest and the mean difference of whole decoded pictures, in levels, by kind of file."""
    found = {"photos": _differences([Path(file).read_bytes() for file in setting.files], setting)}
    for kind, options in KINDS.items():
        found[kind] = _differences([_made(size, number, kind, options) for number, size in enumerate(SIZES)], setting)
    return found


def _made(size: tuple[int, int], number: int, kind: str, options: dict[str, Any]) -> bytes:
    stream = BytesIO()
    picture = samples.picture(number, (size[1], size[0])).convert("L" if kind == "grey" else "RGB")
    picture.save(stream, "JPEG", quality=90, **options)
    return stream.getvalue()


def _opened(data: bytes) -> torch.Tensor:
    return F.pil_to_tensor(Image.open(BytesIO(data)))  # type: ignore[no-any-return]


def _differences(files: list[bytes], setting: Setting) -> dict[str, Any]:
    stats, fallbacks = ErrorStats(), dict(accel.stats()["fallbacks"])
    for data in files:
        wanted = _opened(data)
        with accel.image_backend("cuda", device=str(setting.device), exact=False):
            stats.add(wanted, computed(partial(_opened, data), 0, setting.device))
    declined = {
        reason: count - fallbacks.get(reason, 0)
        for reason, count in accel.stats()["fallbacks"].items()
        if count > fallbacks.get(reason, 0)
    }
    return {"files": len(files), "max": int(stats.largest), "mean": stats.mean, "fallbacks": declined}
