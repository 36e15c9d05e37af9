"""What accel brings to pipelines beyond classification, and to other libraries' loaders, on one core.

    python -m bench.libraries [--data DIR] [--images N] [--rounds N] [--only TEXT] [--out FILE]

Each row is an epoch over the same photos, as a library's documentation or a paper's repository writes it: detection and
segmentation as in torchvision's references, with two boxes and their masks or with a mask in a PNG file; a letterbox;
the views of self-supervised training; WebDataset, Hugging Face datasets, timm, LitData and fastai. Lightning and
Accelerate iterate over a DataLoader, which ``python -m bench`` measures. CPU time of one thread, with accel and without
in turns; all tensors and the random states are compared first. A library that is not installed is named.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import functional as F1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import accel
from accel.cli.arguments import Red, command
from accel.cli.data import folder
from accel.cli.tables import Table, show
from accel.system.imports import LazyModule
from bench.epochs import linked, modules_not_collected
from bench.machine import parser, write
from bench.pipelines import MEAN, STD

Sample = Callable[[str], Any]
"""Makes a sample of a file's name; the mask lies beside it."""

_BATCH, _WARM = 16, 32
_wds, _datasets, _litdata = LazyModule("webdataset"), LazyModule("datasets"), LazyModule("litdata")
_timm, _fastai = LazyModule("timm.data"), LazyModule("fastai.vision.all")


def opened(path: str) -> Image.Image:
    return Image.open(path).convert("RGB")


# -- detection and segmentation -----------------------------------------------------------------------------


def boxes_of(image: Any) -> dict[str, Any]:
    """Two boxes and their masks, as an image's annotation has them."""
    height, width = F.get_size(image)
    places = torch.tensor([[0.02, 0.05, 0.6, 0.55], [0.4, 0.25, 0.95, 0.9]]) * torch.tensor([width, height] * 2)
    masks = torch.zeros(2, height, width, dtype=torch.uint8)
    for mask, (left, top, right, bottom) in zip(masks, places.int().tolist(), strict=True):
        mask[top:bottom, left:right] = 1
    boxes = tv_tensors.BoundingBoxes(places, format="XYXY", canvas_size=(height, width))
    return {"boxes": boxes, "masks": tv_tensors.Mask(masks), "labels": torch.tensor([1, 2])}


def detection(policy: str, masks: bool, begin: Callable[[Image.Image], Any]) -> Sample:
    """torchvision's references/detection, ``DetectionPresetTrain`` with v2."""
    fill = defaultdict(lambda: (123.0, 117.0, 104.0), {tv_tensors.Mask: 0})
    steps: dict[str, list[Any]] = {
        "hflip": [],
        "multiscale": [v2.RandomShortestSize(min_size=tuple(range(480, 801, 32)), max_size=1333)],
        "lsj": [v2.ScaleJitter(target_size=(1024, 1024)), v2.RandomCrop((1024, 1024), pad_if_needed=True, fill=fill)],
        "ssd": [v2.RandomPhotometricDistort(), v2.RandomZoomOut(fill=fill), v2.RandomIoUCrop()],
        "ssdlite": [v2.RandomIoUCrop()],
    }
    last = [v2.RandomHorizontalFlip(0.5), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    boxes = [v2.ConvertBoundingBoxFormat("XYXY"), v2.SanitizeBoundingBoxes(), v2.ToPureTensor()]
    transform = v2.Compose([*steps[policy], *last, *boxes])

    def sample(path: str) -> Any:
        image = begin(opened(path))
        target = boxes_of(image)
        if not masks:
            del target["masks"]
        return transform(image, target)

    return sample


def letterbox(begin: Callable[[Image.Image], Any]) -> Sample:
    """A photo inside a square of 640 pixels, as for YOLO: resized to fit, in grey bars."""
    last = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.SanitizeBoundingBoxes()])

    def sample(path: str) -> Any:
        image = begin(opened(path))
        height, width = F.get_size(image)
        scale = 640 / max(height, width)
        size = [round(height * scale), round(width * scale)]
        above, left = (640 - size[0]) // 2, (640 - size[1]) // 2
        bars = [left, above, 640 - size[1] - left, 640 - size[0] - above]
        target = boxes_of(image)
        boxes = F.pad(F.resize(target["boxes"], size), bars)
        padded = F.pad(F.resize(image, size, antialias=True), bars, fill=[114.0] * 3)
        return last(padded, {"boxes": boxes, "labels": target["labels"]})

    return sample


def with_mask(path: str) -> tuple[Image.Image, Image.Image]:
    return opened(path), Image.open(Path(path).with_suffix(".png"))


def segmentation_v1(path: str) -> Any:
    """torchvision's references/segmentation, ``SegmentationPresetTrain(base_size=520, crop_size=480)``, v1."""
    image, mask = with_mask(path)
    size = random.randint(260, 1040)
    image, mask = F1.resize(image, size), F1.resize(mask, size, interpolation=T.InterpolationMode.NEAREST)
    if random.random() < 0.5:
        image, mask = F1.hflip(image), F1.hflip(mask)
    missing = [max(480 - image.width, 0), max(480 - image.height, 0)]
    if any(missing):
        image, mask = F1.pad(image, [0, 0, *missing], fill=0), F1.pad(mask, [0, 0, *missing], fill=255)
    box = T.RandomCrop.get_params(image, (480, 480))
    image, mask = F1.crop(image, *box), F1.crop(mask, *box)
    values = F1.convert_image_dtype(F1.pil_to_tensor(image), torch.float32)
    return F1.normalize(values, MEAN, STD), torch.as_tensor(np.array(mask), dtype=torch.int64)


def segmentation_v2(begin: Callable[[Image.Image], Any]) -> Sample:
    """The same with v2."""
    fill = defaultdict(lambda: 0, {tv_tensors.Mask: 255})
    steps = [v2.RandomResize(260, 1040), v2.RandomHorizontalFlip(0.5), v2.RandomCrop(480, None, True, fill)]
    dtypes = v2.ToDtype({tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}, scale=True)
    transform = v2.Compose([*steps, v2.ToImage(), dtypes, v2.Normalize(MEAN, STD), v2.ToPureTensor()])

    def sample(path: str) -> Any:
        image, mask = with_mask(path)
        return transform(begin(image), tv_tensors.Mask(mask))

    return sample


# -- self-supervised training -------------------------------------------------------------------------------


class Blur:
    """MoCo's and DINO's: Pillow's Gaussian blur of a random radius."""

    def __init__(self, least: float = 0.1, most: float = 2.0) -> None:
        self.least, self.most = least, most

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(radius=random.uniform(self.least, self.most)))


def solarized(image: Image.Image) -> Image.Image:
    return ImageOps.solarize(image)


def view(
    size: int,
    scale: tuple[float, float],
    jitter: tuple[float, float, float, float],
    blur: float,
    solarize: float = 0.0,
    blurred: Any = None,
    interpolation: T.InterpolationMode = T.InterpolationMode.BILINEAR,
) -> T.Compose:
    steps = [
        T.RandomResizedCrop(size, scale=scale, interpolation=interpolation),
        T.RandomHorizontalFlip(),
        T.RandomApply([T.ColorJitter(*jitter)], p=0.8),
        T.RandomGrayscale(p=0.2),
        T.RandomApply([blurred or Blur()], p=blur),
        T.RandomApply([T.Lambda(solarized)], p=solarize),
    ]
    return T.Compose([*steps, T.ToTensor(), T.Normalize(MEAN, STD)])


_STRONG, _MILD, _DINO = (0.4, 0.4, 0.4, 0.1), (0.4, 0.4, 0.2, 0.1), (0.4, 0.4, 0.2, 0.1)
_SIMCLR = (0.8, 0.8, 0.8, 0.2)


def views(transforms: Sequence[Any]) -> Sample:
    return lambda path: [transform(image) for image in [opened(path)] for transform in transforms]


def simclr(number: int) -> Sample:
    steps = [
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.RandomApply([T.ColorJitter(*_SIMCLR)], p=0.8),
        T.RandomGrayscale(p=0.2),
        T.GaussianBlur(kernel_size=23),
        T.ToTensor(),
    ]
    return views([T.Compose(steps)] * number)


def multi_crop(number: int) -> Sample:
    """DINO's, of two large views and so many small ones."""
    bicubic = T.InterpolationMode.BICUBIC
    large = [view(224, (0.4, 1.0), _DINO, *given, None, bicubic) for given in ((1.0, 0.0), (0.1, 0.2))]
    return views([*large, *[view(96, (0.05, 0.4), _DINO, 0.5, 0.0, None, bicubic)] * number])


# -- other libraries ----------------------------------------------------------------------------------------

_CROP = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]
_TO_FLOAT = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]


def webdataset(decoded: str, transform: Any, files: Sequence[str]) -> Any:
    shard = str(Path(files[0]).with_name("shard.tar"))
    if not Path(shard).exists():
        with _wds.TarWriter(shard) as writer:
            for number, path in enumerate(files):
                writer.write({"__key__": f"{number:06}", "jpg": Path(path).read_bytes(), "cls": number})
    dataset = _wds.WebDataset(shard, shardshuffle=False).decode(decoded).to_tuple("jpg", "cls")
    return _wds.WebLoader(dataset.map_tuple(transform, _same), batch_size=_BATCH)


def _same(value: Any) -> Any:
    return value


def huggingface(transform: Any, files: Sequence[str]) -> Any:
    """``set_format("torch")``, and a transform in the collate function."""
    rows = _datasets.Dataset.from_dict({"image": list(files)}).cast_column("image", _datasets.Image())
    rows.set_format("torch")
    return DataLoader(rows, _BATCH, collate_fn=lambda rows: torch.stack([transform(row["image"]) for row in rows]))


def timm(is_training: bool, files: Sequence[str]) -> Any:
    """``create_loader`` as timm's scripts call it: its transforms, ``fast_collate``, normalised behind the loader."""
    photos = Path(files[0]).with_name("timm")
    if not photos.exists():
        linked(files, photos)
    dataset, cpu = _timm.ImageDataset(str(photos)), torch.device("cpu")
    options = {"num_workers": 0, "persistent_workers": False, "device": cpu, "is_training": is_training}
    return _timm.create_loader(dataset, 224, _BATCH, **options)


def _columns(path: str) -> dict[str, Any]:
    return {"image": Image.open(path), "label": len(path)}


def litdata(transform: Any, files: Sequence[str]) -> Any:
    """Chunks of JPEG files, which come as uint8 tensors."""
    chunks = Path(files[0]).with_name("litdata")
    if not chunks.exists():
        options = {"chunk_bytes": "64MB", "num_workers": 1, "start_method": "fork"}
        _litdata.optimize(_columns, inputs=list(files), output_dir=str(chunks), **options)
    dataset = _litdata.StreamingDataset(str(chunks), transform=partial(_of_image, transform))
    return _litdata.StreamingDataLoader(dataset, batch_size=_BATCH)


def _of_image(transform: Any, row: dict[str, Any]) -> Any:
    return transform(row["image"]), row["label"]


def fastai(files: Sequence[str]) -> Any:
    """``ImageDataLoaders`` with a crop of each image and batch transforms."""
    return _fastai.ImageDataLoaders.from_path_func(
        Path(files[0]).parent,
        list(map(Path, files)),
        _parity,
        valid_pct=0,
        item_tfms=_fastai.RandomResizedCrop(224),
        batch_tfms=_fastai.Normalize.from_stats(MEAN, STD, cuda=False),
        bs=_BATCH,
        num_workers=0,
        device=torch.device("cpu"),
    ).train


def _parity(path: Path) -> str:
    return str(len(path.read_bytes()) % 2)


class Samples(Dataset[Any]):
    """A dataset of one's own."""

    def __init__(self, files: Sequence[str], sample: Sample) -> None:
        self.files, self.sample = files, sample

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Any:
        return self.sample(self.files[number])


def listed(sample: Sample, files: Sequence[str]) -> Any:
    """Lists of samples, as detection's collate function makes them."""
    return DataLoader(Samples(files, sample), _BATCH, collate_fn=_same)


def stacked(sample: Sample, files: Sequence[str]) -> Any:
    return DataLoader(Samples(files, sample), _BATCH)


_PIL, _TV = _same, tv_tensors.Image
ROWS: dict[str, tuple[str | None, Callable[[Sequence[str]], Any]]] = {
    **{
        f"detection, {policy}{', masks' * masks}, {kind}": (None, partial(listed, detection(policy, masks, begin)))
        for policy in ("hflip", "multiscale", "lsj", "ssd", "ssdlite")
        for masks in ((False, True) if policy in ("hflip", "lsj") else (False,))
        for kind, begin in (("Pillow", _PIL), ("tv_tensors", _TV))
    },
    "letterbox, Pillow": (None, partial(listed, letterbox(_PIL))),
    "letterbox, tv_tensors": (None, partial(listed, letterbox(_TV))),
    "segmentation, v1": (None, partial(stacked, segmentation_v1)),
    "segmentation, Pillow": (None, partial(stacked, segmentation_v2(_PIL))),
    "segmentation, tv_tensors": (None, partial(stacked, segmentation_v2(_TV))),
    "SimCLR, two views": (None, partial(stacked, simclr(2))),
    "SimCLR, ten views": (None, partial(stacked, simclr(10))),
    "MoCo v3": (
        None,
        partial(stacked, views([view(224, (0.08, 1), _MILD, 1.0), view(224, (0.08, 1), _MILD, 0.1, 0.2)])),
    ),
    "BYOL": (
        None,
        partial(
            stacked,
            views(
                [
                    view(224, (0.08, 1), _MILD, 1.0, 0.0, T.GaussianBlur(23), T.InterpolationMode.BICUBIC),
                    view(224, (0.08, 1), _MILD, 0.1, 0.2, T.GaussianBlur(23), T.InterpolationMode.BICUBIC),
                ]
            ),
        ),
    ),
    "DINO, two and eight views": (None, partial(stacked, multi_crop(8))),
    "WebDataset, torchrgb8": ("webdataset", partial(webdataset, "torchrgb8", v2.Compose([*_CROP, *_TO_FLOAT]))),
    "WebDataset, torchrgb": ("webdataset", partial(webdataset, "torchrgb", v2.Compose([*_CROP, _TO_FLOAT[1]]))),
    "WebDataset, pil": ("webdataset", partial(webdataset, "pil", v2.Compose([*_CROP, v2.ToImage(), *_TO_FLOAT]))),
    'datasets, set_format("torch")': ("datasets", partial(huggingface, v2.Compose([*_CROP, *_TO_FLOAT]))),
    "timm, create_loader, training": ("timm", partial(timm, True)),
    "timm, create_loader, evaluation": ("timm", partial(timm, False)),
    "LitData, StreamingDataLoader": ("litdata", partial(litdata, v2.Compose([*_CROP, *_TO_FLOAT]))),
    "fastai, ImageDataLoaders": ("fastai", fastai),  # the last one: fastai adds to Pillow's class
}


def epoch(make: Callable[[Sequence[str]], Any], files: Sequence[str], seed: int) -> tuple[float, Any]:
    """The CPU seconds of an epoch, until all values are there, and its tensors and the random states after it."""
    random.seed(seed)
    torch.manual_seed(seed)
    loader = make(files)
    found: list[torch.Tensor] = []
    spent, batches = -time.process_time(), iter(loader)
    while True:
        batch = next(batches, None)
        tensors = [each for each in tree_leaves(batch) if isinstance(each, torch.Tensor)]
        for each in tensors:
            each.flatten()[:1].clone()
        spent += time.process_time()
        if batch is None:
            return spent, [*found, torch.get_rng_state(), random.getstate()]
        found += [each.clone() for each in tensors]
        spent -= time.process_time()


def measured(name: str, make: Callable[[Sequence[str]], Any], files: Sequence[str], rounds: int) -> dict[str, float]:
    """Milliseconds an image without accel and with it."""
    spent: dict[str, list[float]] = {"torchvision": [], "accel": []}
    make(files)  # a library's own files are written, which may draw random numbers
    for seed in range(rounds + 1):
        expected_in, expected = epoch(make, files, seed)
        with accel.image_backend("cpu", threads=1, cache=None):
            epoch(make, files[:_WARM], seed)  # after some images pipelines are compiled
            found_in, found = epoch(make, files, seed)
        alike = (
            torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(found, expected, strict=True)
        )
        if not all(alike):
            raise Red(f"{name}: a tensor, or the random state, differs from torchvision's")
        if seed:  # the first one warms up
            spent["torchvision"].append(expected_in)
            spent["accel"].append(found_in)
    result = {which: 1000 * median(times) / len(files) for which, times in spent.items()}
    return {**result, "ratio": median(a / b for a, b in zip(*spent.values(), strict=True))}


def table(rows: dict[str, Any]) -> Table:
    """Milliseconds of CPU time an image, and what is not installed."""
    columns = "torchvision, ms", "accel, ms", "times as fast"
    cells = {
        name: [f"{each[key]:.{digits}f}" for key, digits in (("torchvision", 2), ("accel", 2), ("ratio", 1))]
        if "ratio" in each
        else ["not installed", "", ""]
        for name, each in rows.items()
    }
    return Table("CPU time an image, one thread", ("", *columns), [[name, *each] for name, each in cells.items()])


@command("libraries")
def main(argv: Sequence[str] | None = None) -> int:
    options = parser("bench.libraries", str(__doc__).partition("\n")[0], out="libraries.json", images=96, rounds=5)
    options.add_argument("--only", default="", metavar="TEXT", help="rows with this in their names")
    args = options.parse_args(argv)
    found: dict[str, Any] = {}
    torch.set_num_threads(1)
    with folder(args.data) as (root, _), tempfile.TemporaryDirectory() as made, modules_not_collected():
        linked(sorted(map(str, root.rglob("*.jpg")))[: args.images], Path(made))
        files = sorted(map(str, Path(made).rglob("*.jpg")))
        for path in files:
            mask = Image.open(path).convert("L").quantize(21)
            mask.save(Path(path).with_suffix(".png"))
        for name, (library, make) in ROWS.items():
            if args.only not in name:
                continue
            if library is not None and find_spec(library) is None:
                found[name] = {"not installed": library}
                continue
            found[name] = measured(name, make, files, args.rounds)
            print(f"{name}: {found[name]['ratio']:.2f}", flush=True)
    show(table(found))
    used = {library for name, (library, _) in ROWS.items() if library is not None and "ratio" in found.get(name, {})}
    about = {"images": args.images, "rounds": args.rounds, "libraries": {name: version(name) for name in sorted(used)}}
    write(args.out, {**about, "rows": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
