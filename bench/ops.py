"""``python -m bench.ops``: every op on Pillow images, one by one: is it torchvision's, and how long does it take?

Each op runs on photos cut to 375 x 500, followed by ToTensor, on one thread, in turns with torchvision on Pillow
images. Prints a table in Markdown: the largest difference in levels of uint8 over all photos, of the cpu backend and of
the cuda backend (on the first GPU, or else its kernels on the host), and the least CPU time of all rounds.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

import accel
from accel import testing
from accel.cli.arguments import at_least
from accel.cli.data import folder, open_folder

SIZE = (375, 500)
"""(height, width)"""

_TURN = {"angle": 13.0, "fill": [9, 20, 31]}
_SHEARED: tuple[Any, ...] = (7.0, [12, -8], 1.1, [5.0, -3.0])
_CORNERS = ([[0, 0], [499, 0], [499, 374], [0, 374]], [[20, 11], [480, 30], [470, 360], [9, 340]])


def _affine(mode: Mode) -> Callable[[Any], Any]:
    return lambda image: F.affine(image, *_SHEARED, interpolation=mode)


def _perspective(mode: Mode) -> Callable[[Any], Any]:
    return lambda image: F.perspective(image, *_CORNERS, interpolation=mode)


def _displacement() -> torch.Tensor:
    return torch.linspace(-0.05, 0.05, 2 * SIZE[0] * SIZE[1]).view(1, *SIZE, 2)


OPS: dict[str, Callable[[Any], Any]] = {
    "crop": lambda image: F.crop(image, 20, 30, 224, 224),
    "hflip": F.hflip,
    "vflip": F.vflip,
    "pad, constant": lambda image: F.pad(image, 16, (1, 2, 3)),
    "pad, reflect": lambda image: F.pad(image, 16, padding_mode="reflect"),
    "resize, bilinear": lambda image: F.resize(image, [256, 341]),
    "resize, bicubic": lambda image: F.resize(image, [256, 341], Mode.BICUBIC),
    "resize, nearest": lambda image: F.resize(image, [256, 341], Mode.NEAREST),
    "rotate, nearest": lambda image: F.rotate(image, **_TURN),
    "rotate, bilinear": lambda image: F.rotate(image, interpolation=Mode.BILINEAR, expand=True, **_TURN),
    "rotate, bicubic": lambda image: F.rotate(image, interpolation=Mode.BICUBIC, **_TURN),
    "rotate by 90": lambda image: F.rotate(image, 90, expand=True),
    "affine, nearest": _affine(Mode.NEAREST),
    "affine, bilinear": _affine(Mode.BILINEAR),
    "translate, nearest": lambda image: F.affine(image, 0, [12, -8], 1.0, [0.0, 0.0]),
    "perspective, nearest": _perspective(Mode.NEAREST),
    "perspective, bilinear": _perspective(Mode.BILINEAR),
    "perspective, bicubic": _perspective(Mode.BICUBIC),
    "elastic": lambda image: F.elastic_transform(image, _displacement()),
    "brightness": lambda image: F.adjust_brightness(image, 1.3),
    "contrast": lambda image: F.adjust_contrast(image, 0.7),
    "saturation": lambda image: F.adjust_saturation(image, 1.4),
    "hue": lambda image: F.adjust_hue(image, 0.1),
    "gamma": lambda image: F.adjust_gamma(image, 0.8),
    "sharpness": lambda image: F.adjust_sharpness(image, 1.8),
    "grayscale, 1 channel": lambda image: F.rgb_to_grayscale(image, 1),
    "grayscale, 3 channels": lambda image: F.rgb_to_grayscale(image, 3),
    "invert": F.invert,
    "posterize": lambda image: F.posterize(image, 3),
    "solarize": lambda image: F.solarize(image, 128),
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "permute channels": lambda image: F2.permute_channels(image, [2, 0, 1]),
    "gaussian blur, 5 x 5": lambda image: F.gaussian_blur(image, 5),
    "gaussian blur, 23 x 23": lambda image: F.gaussian_blur(image, 23),
    "JPEG": lambda image: F2.jpeg(image, 75),
}
POLICIES: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "ColorJitter": lambda: T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "AutoAugment": T.AutoAugment,
    "RandAugment": T.RandAugment,
    "TrivialAugmentWide": T.TrivialAugmentWide,
}


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    torch.set_num_threads(1)
    with folder(args.data) as (root, _):
        images = [_cut(path) for path in open_folder(root).files[: args.images]]
    print("| op | identical to torchvision? cpu | cuda | torchvision, ms | accel, ms | times faster |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    rows: dict[str, Callable[[Any], Any]] = {**OPS, **{name: make() for name, make in POLICIES.items()}}
    for name, op in rows.items():
        same = " | ".join(_same(op, images, backend) for backend in ("cpu", "cuda"))
        before, after = _times(op, images, args.rounds)
        print(f"| {name} | {same} | {before * 1e3:.2f} | {after * 1e3:.2f} | {before / after:.1f} |")
    return 0


def _cut(path: str) -> Image.Image:
    height, width = SIZE
    with Image.open(path) as image:
        return F.center_crop(F.resize(image.convert("RGB"), max(SIZE)), [height, width])  # type: ignore[no-any-return]


def _same(op: Callable[[Any], Any], images: Sequence[Image.Image], backend: str) -> str:
    """Whether a backend's values are torchvision's, in words."""
    try:
        with _backend(backend):
            pass
    except accel.BackendUnavailable:
        return "not run"
    before = accel.stats()["fallbacks"]
    worst, share = _difference(op, images, backend)
    if accel.stats()["fallbacks"] != before:
        return "by the host"
    return "yes" if not worst else f"within {worst} level{'s' * (worst > 1)}, {share:.4%} of values"


def _difference(op: Callable[[Any], Any], images: Sequence[Image.Image], backend: str) -> tuple[int, float]:
    """The largest difference in levels, and the share of values that differ."""
    worst, wrong, total = 0, 0, 0
    for seed, image in enumerate(images):
        with _backend(backend):
            found = torch.as_tensor(testing.computed(_recorded(op, image, seed)))
        with _backend("torchvision"):
            expected = _computed(op, image, seed)
        levels = (found - expected).mul(255).round().abs()
        worst, wrong, total = max(worst, int(levels.max())), wrong + int((levels > 0).sum()), total + levels.numel()
    return worst, wrong / total


def _times(op: Callable[[Any], Any], images: Sequence[Image.Image], rounds: int) -> tuple[float, float]:
    """The least CPU seconds for an image of all rounds: torchvision's, accel's; in turns."""
    seconds: dict[str, list[float]] = {"torchvision": [], "cpu": []}
    for _ in range(rounds):
        for backend, found in seconds.items():
            with _backend(backend):
                start = time.process_time()
                for seed, image in enumerate(images):
                    _computed(op, image, seed)
                found.append((time.process_time() - start) / len(images))
    return min(seconds["torchvision"]), min(seconds["cpu"])


def _backend(name: str) -> Any:
    if name == "cuda" and not torch.cuda.is_available():
        return accel.image_backend(name, device="cpu", threads=1)
    return accel.image_backend(name, **({} if name == "torchvision" else {"threads": 1}))


def _recorded(op: Callable[[Any], Any], image: Image.Image, seed: int) -> Any:
    torch.manual_seed(seed)
    random.seed(seed)
    return F.to_tensor(op(image))


def _computed(op: Callable[[Any], Any], image: Image.Image, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.asarray(_recorded(op, image, seed)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.ops", description="Every op on Pillow images, one by one.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of images [made for the run]")
    parser.add_argument("--images", type=at_least(1), default=8, metavar="N", help="how many [%(default)s]")
    parser.add_argument("--rounds", type=at_least(1), default=5, metavar="N", help="in turns [%(default)s]")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
