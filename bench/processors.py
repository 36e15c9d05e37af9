"""Hugging Face image processors, on one core, with and without accel.

    python -m bench.processors [NAME ...] [--data DIR] [--images N] [--rounds N] [--out FILE]

Each is made of its class, with the defaults of the published models, and given lists of files in memory, of three
sizes: photos as they are, and enlarged to 1 and 12 megapixels. ``opened``: the images that ``Image.open`` returns, as
for bytes that are served. ``hashed``: ``np.asarray(image)`` first, as vLLM hashes what it is given. Every field of the
results must be equal in every bit. Both sides take turns, on one thread; times are the CPU's, and include opening,
decoding and the first use of all values.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils._pytree import tree_leaves

import accel
from accel.cli import costs, screen
from accel.cli.arguments import Red, command
from accel.cli.data import folder
from accel.cli.tables import Table, show
from accel.system.imports import LazyModule
from bench.machine import known, parser, write

_transformers: Any = LazyModule("transformers")


class Processor(NamedTuple):
    """A processor's class, its settings beside the defaults, and models that use it."""

    name: str
    models: str
    settings: dict[str, Any]


PROCESSORS = {
    "CLIP": Processor("CLIPImageProcessor", "CLIP", {}),
    "ViT": Processor("ViTImageProcessor", "ViT", {}),
    "SigLIP": Processor("SiglipImageProcessor", "SigLIP, PaliGemma", {}),
    "Bit": Processor("BitImageProcessor", "DINOv2", {"size": {"shortest_edge": 256}}),
    "DETR": Processor("DetrImageProcessor", "DETR", {}),
    "SAM": Processor("SamImageProcessor", "SAM", {}),
    "Qwen2-VL": Processor("Qwen2VLImageProcessor", "Qwen2-VL, Qwen2.5-VL", {}),
    "Qwen3-VL": Processor("Qwen2VLImageProcessor", "Qwen3-VL", {"patch_size": 16}),
    "LLaVA-NeXT": Processor("LlavaNextImageProcessor", "LLaVA-NeXT", {}),
    "Idefics3": Processor("Idefics3ImageProcessor", "Idefics3", {}),
    "SmolVLM": Processor("SmolVLMImageProcessor", "SmolVLM", {"max_image_size": {"longest_edge": 512}}),
    "GotOcr2": Processor(
        "GotOcr2ImageProcessor", "InternVL", {"size": {"height": 448, "width": 448}, "crop_to_patches": True}
    ),
}
SIZES = {"0.2 MP": None, "1 MP": (1152, 896), "12 MP": (4000, 3000)}
_LISTS = {"0.2 MP": 8, "1 MP": 4, "12 MP": 2}
"""The images of a list."""


@command("processors")
def main(argv: Sequence[str] | None = None) -> int:
    description = (__doc__ or "").partition("\n")[0]
    arguments = parser("bench.processors", description, out="processors.json", rounds=5, images=24)
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROCESSORS)}")
    args = arguments.parse_args(argv)
    found: dict[str, Any] = {}
    torch.set_num_threads(1)
    with folder(args.data) as (root, _):
        paths = sorted(root.rglob("*.jpg"))[: args.images]
        files = {size: _files(paths, pixels) for size, pixels in SIZES.items()}
        for name, processor in known("processor", args.names, PROCESSORS).items():
            found[name] = {"class": processor.name, "models": processor.models}
            for size, those in files.items():
                found[name][size] = _measured(processor, those, _LISTS[size], args.rounds)
                screen.note(f"{name}, {size}: {found[name][size]['opened']['ratio']:.2f}")
    result = {"rounds": args.rounds, "processors": found, "transformers": _transformers.__version__}
    show(table(result))
    write(args.out, result)
    return 0


def table(result: Mapping[str, Any]) -> Table:
    """For each processor how many times as fast accel is, and its milliseconds an image at 0.2 megapixels."""
    ways = [(size, way) for way in ("opened", "hashed") for size in SIZES]
    lines = []
    for each in result["processors"].values():
        small = each["0.2 MP"]["opened"]
        speeds = [f"{each[size][way]['ratio']:.1f}" for size, way in ways]
        lines.append((f"`{each['class']}`", each["models"], "yes", *speeds, f"{small['accel ms']:.1f}"))
    columns = ("class", "models", "equal", *(f"{size}, {way}" for size, way in ways), "ms, 0.2 MP, opened")
    return Table("", columns, lines, [f"transformers {result['transformers']}"], text=3)


def _files(paths: Sequence[Path], size: tuple[int, int] | None) -> list[bytes]:
    """Files in memory; of a larger size half as many, of 12 megapixels a sixth."""
    if size is None:
        return [path.read_bytes() for path in paths]
    made = []
    for path in paths[: -(-len(paths) // (2 if size[0] < 2000 else 6))]:
        stream = BytesIO()
        Image.open(path).convert("RGB").resize(size, Image.Resampling.BICUBIC).save(stream, "JPEG", quality=90)
        made.append(stream.getvalue())
    return made


def _measured(processor: Processor, files: Sequence[bytes], length: int, rounds: int) -> dict[str, Any]:
    """For each way the milliseconds an image, by the library itself and by accel, and the ratio."""
    process = getattr(_transformers, processor.name)(**processor.settings)
    lists = [files[begin : begin + length] for begin in range(0, len(files), length)]

    def results(hashed: bool, use: Callable[[Any], Any]) -> list[Any]:
        made = []
        for some in lists:
            images = [Image.open(BytesIO(file)).convert("RGB") for file in some]
            if hashed:
                for image in images:
                    np.asarray(image)
            made.append(use(process(images, return_tensors="pt")))
        return made

    found: dict[str, Any] = {}
    for way in ("opened", "hashed"):
        spent: dict[str, list[float]] = {"torchvision": [], "cpu": []}
        for number in range(-1, rounds):
            seen: list[Any] = []
            for backend, times in spent.items():
                with accel.image_backend(backend, **({"threads": 1, "cache": None} if backend == "cpu" else {})):
                    if number < 0:
                        seen.append([dict(each) for each in results(way == "hashed", lambda made: made)])
                        [leaf.sum() for leaf in tree_leaves(seen[-1]) if isinstance(leaf, torch.Tensor)]
                        continue
                    begin = time.process_time()
                    results(way == "hashed", _used)
                    times.append(time.process_time() - begin)
            if seen and not _equal(*seen):
                raise Red(f"{processor.name}, {way}: results differ")
        plain, ours = (1e3 * median(times) / len(files) for times in spent.values())
        ratio = costs.ratio(spent["cpu"], spent["torchvision"])
        found[way] = {"images": len(files), "plain ms": plain, "accel ms": ours, "ratio": ratio}
    return found


def _used(made: Any) -> None:
    """Have all values computed."""
    for value in tree_leaves(dict(made)):
        if isinstance(value, torch.Tensor):
            value.flatten()[:1].clone()


def _equal(wanted: Any, found: Any) -> bool:
    """Whether results have the same fields, equal in every bit, and alike in dtype and strides."""
    if isinstance(wanted, torch.Tensor):
        alike = (wanted.dtype, wanted.shape, wanted.stride()) == (found.dtype, found.shape, found.stride())
        return alike and torch.equal(wanted, found)
    if isinstance(wanted, dict):
        return wanted.keys() == found.keys() and all(_equal(wanted[key], found[key]) for key in wanted)
    if isinstance(wanted, (list, tuple)):
        return len(wanted) == len(found) and all(map(_equal, wanted, found))
    return bool(wanted == found)


if __name__ == "__main__":
    sys.exit(main())
