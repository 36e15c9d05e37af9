"""torchvision's datasets, a user's own ways to open images, and every format: the same with and without accel."""

import gzip
import json
import pickle
from collections.abc import Callable
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torchvision import datasets, tv_tensors
from torchvision import transforms as v1
from torchvision.transforms import v2

import accel
from accel.lazy.tensor_base import LazyTensorBase
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.helpers import assert_equal_runs, jpeg, picture

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)  # pycocotools

SCALED = v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)

V1 = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize((0.5,), (0.2,))])
V1_SMALL = v1.Compose([v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor()])
V2 = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), SCALED, v2.ToPureTensor()])
V2_PILLOW = v2.Compose([v2.RandomCrop(28, padding=4, pad_if_needed=True), v2.Resize(20), v2.PILToTensor()])
PIPELINES = {"v1": V1, "v1-small": V1_SMALL, "v2": V2, "v2-pillow": V2_PILLOW}


def samples(make: Callable[[], Any], count: int = 4) -> Callable[[], list[Any]]:
    """A function that makes a dataset and gives its first samples."""

    def some() -> list[Any]:
        dataset = make()
        return [dataset[index] for index in range(min(count, len(dataset)))]

    return some


def check(make: Callable[[], Any]) -> list[Any]:
    """Samples are equal with and without accel, whatever is beside the image; accel's, whose images are lazy."""
    for seed in range(3):
        assert_equal_runs(samples(make), seed)
    with accel.image_backend("cpu"):
        found = samples(make)()
    assert all(isinstance(image, LazyTensorBase) for image, *_ in found)
    return found


# -- torchvision's datasets ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cifar")
    folder = root / datasets.CIFAR10.base_folder
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, _ in datasets.CIFAR10.train_list:
        entry = {"data": rng.integers(0, 256, (3, 3072), np.uint8), "labels": [1, 2, 3]}
        (folder / name).write_bytes(pickle.dumps(entry))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcd")}))
    return root


class Cifar(datasets.CIFAR10):
    """With files of the test's own, which have other checksums."""

    train_list: ClassVar[Any] = [(name, None) for name, _ in datasets.CIFAR10.train_list]
    meta: ClassVar[Any] = {**datasets.CIFAR10.meta, "md5": None}

    def _check_integrity(self) -> bool:
        return True


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mnist")
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for prefix, count in (("train", 6), ("t10k", 3)):
        images, labels = rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count, np.uint8)
        header = np.array([2051, count, 28, 28], ">i4").tobytes()
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(
            np.array([2049, count], ">i4").tobytes() + labels.tobytes()
        )
    return root


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
def test_image_folder_of_many_formats(tmp_path: Path, pipeline: Any) -> None:
    helpers.write_image_folder(tmp_path)
    for number, kind in enumerate(("png", "bmp", "tiff", "webp")):
        picture(60, 50, "RGB" if number else "L", number).save(tmp_path / "cat" / f"{number}.{kind}")
    check(lambda: datasets.ImageFolder(tmp_path, pipeline))


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("voc")
    base = root / "VOCdevkit" / "VOC2012"
    for name in ("JPEGImages", "Annotations", "SegmentationClass", "ImageSets/Main", "ImageSets/Segmentation"):
        (base / name).mkdir(parents=True)
    for number in range(3):
        (base / "JPEGImages" / f"{number}.jpg").write_bytes(jpeg(90, 70, seed=number))
        classes = np.arange(90 * 70, dtype=np.uint8).reshape(70, 90) % 21
        mask = Image.fromarray(classes).convert("P")
        mask.save(base / "SegmentationClass" / f"{number}.png")
        box = "<bndbox><xmin>5</xmin><ymin>6</ymin><xmax>50</xmax><ymax>60</ymax></bndbox>"
        (base / "Annotations" / f"{number}.xml").write_text(
            f"<annotation><size><width>90</width><height>70</height><depth>3</depth></size>"
            f"<object><name>cat</name>{box}</object></annotation>"
        )
    for folder in ("Main", "Segmentation"):
        (base / "ImageSets" / folder / "train.txt").write_text("0\n1\n2\n")
    return root


DETECTION = v2.Compose([v2.ToImage(), v2.RandomResizedCrop((32, 40)), v2.RandomHorizontalFlip(), SCALED])
DETECTION_PILLOW = v2.Compose([v2.RandomHorizontalFlip(), v2.Resize((32, 40)), v2.Pad(3), v2.ToImage()])


@pytest.mark.parametrize("pipeline", [DETECTION, DETECTION_PILLOW], ids=["tensors", "pillow"])
def test_voc_boxes(voc: Path, pipeline: Any) -> None:
    found = check(lambda: datasets.wrap_dataset_for_transforms_v2(datasets.VOCDetection(voc, transforms=pipeline)))
    assert isinstance(found[0][1]["boxes"], tv_tensors.BoundingBoxes)


@pytest.mark.parametrize("pipeline", [DETECTION, DETECTION_PILLOW], ids=["tensors", "pillow"])
def test_voc_masks(voc: Path, pipeline: Any) -> None:
    found = check(lambda: datasets.wrap_dataset_for_transforms_v2(datasets.VOCSegmentation(voc, transforms=pipeline)))
    assert isinstance(found[0][1], tv_tensors.Mask)


def test_voc_segmentation_with_pillow_masks(voc: Path) -> None:
    """The old way: the same v1 functions on image and mask, which stays Pillow's."""

    def both(image: Any, mask: Any) -> Any:
        box = v1.RandomCrop.get_params(image, (40, 50))
        image, mask = v1.functional.crop(image, *box), v1.functional.crop(mask, *box)
        nearest = v1.InterpolationMode.NEAREST
        return v1.ToTensor()(v1.functional.resize(image, [30, 31])), v1.PILToTensor()(
            v1.functional.resize(mask, [30, 31], nearest)
        )

    check(lambda: datasets.VOCSegmentation(voc, transforms=both))


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("coco")
    images, annotations = [], []
    for number in range(3):
        name = f"{number}.jpg"
        (root / name).write_bytes(jpeg(90, 70, "L" if number == 1 else "RGB", seed=number))
        images.append({"id": number, "file_name": name, "width": 90, "height": 70})
        corners = [10, 10, 60, 10, 60, 50, 10, 50]
        annotations.append(
            {"id": number, "image_id": number, "category_id": 1, "bbox": [10, 10, 50, 40], "area": 2000, "iscrowd": 0,
             "segmentation": [corners]}
        )  # fmt: skip
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cat"}]}
    (root / "annotations.json").write_text(json.dumps(content))
    return root


@pytest.mark.parametrize("pipeline", [DETECTION, DETECTION_PILLOW], ids=["tensors", "pillow"])
def test_coco_boxes_and_masks(coco: Path, pipeline: Any) -> None:
    pytest.importorskip("pycocotools")

    def make() -> Any:
        dataset = datasets.CocoDetection(coco, str(coco / "annotations.json"), transforms=pipeline)
        return datasets.wrap_dataset_for_transforms_v2(dataset, target_keys=("boxes", "masks", "labels"))

    found = check(make)
    assert found[0][1]["masks"].shape[-2:] == found[0][0].shape[-2:]


class Flowers(datasets.Flowers102):
    """With files of the test's own, which have other checksums."""

    def _check_integrity(self) -> bool:
        return True


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
def test_flowers102(tmp_path: Path, pipeline: Any) -> None:
    savemat = pytest.importorskip("scipy.io").savemat
    base = tmp_path / "flowers-102"
    (base / "jpg").mkdir(parents=True)
    for number in range(1, 4):
        (base / "jpg" / f"image_{number:05d}.jpg").write_bytes(jpeg(80, 60, seed=number))
    savemat(base / "imagelabels.mat", {"labels": [1, 7, 3]})
    savemat(base / "setid.mat", {"trnid": [1, 2, 3], "valid": [1, 2], "tstid": [2, 3]})
    check(lambda: Flowers(tmp_path, transform=pipeline))


MADE: dict[str, Callable[[Path, Any], Any]] = {
    "cifar": lambda root, pipeline: Cifar(root, transform=pipeline),
    "mnist": lambda root, pipeline: datasets.MNIST(root, transform=pipeline),
    "voc": lambda root, pipeline: datasets.VOCDetection(root, transform=pipeline),
    "coco": lambda root, pipeline: datasets.CocoDetection(root, str(root / "annotations.json"), transform=pipeline),
    "tmp_path": lambda root, pipeline: datasets.FakeData(6, (3, 40, 50), transform=pipeline),
}
"""By the fixture that makes the folder."""


@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
@pytest.mark.parametrize("name", MADE)
def test_datasets(name: str, pipeline: Any, request: pytest.FixtureRequest) -> None:
    if name == "coco":
        pytest.importorskip("pycocotools")
    root = request.getfixturevalue(name)
    check(lambda: MADE[name](root, pipeline))


# -- a user's own ways to open images -----------------------------------------------------------------------


def opened_from(kind: str, path: Path) -> Image.Image:
    if kind == "path":
        return Image.open(path).convert("RGB")
    if kind == "file object":
        with path.open("rb") as file:
            return Image.open(file).convert("RGB")
    if kind == "with":
        with Image.open(path) as image:
            return image.convert("RGB")
    if kind == "gzip":
        with gzip.open(BytesIO(gzip.compress(path.read_bytes()))) as file:
            return Image.open(file).convert("RGB")  # type: ignore[arg-type]
    image = Image.open(BytesIO(path.read_bytes()))
    if kind == "loaded":  # as Hugging Face's datasets do with every image
        image.load()
        return image
    if kind == "turned":
        image.load()
        return ImageOps.exif_transpose(image).convert("RGB")
    return image.convert("RGB")


@pytest.mark.parametrize("kind", ["path", "file object", "with", "gzip", "bytes", "loaded", "turned"])
@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
def test_own_ways_to_open(tmp_path: Path, pipeline: Any, kind: str) -> None:
    paths = [tmp_path / f"{number}.jpg" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(jpeg(70 + number, 60, seed=number, exif=helpers.exif(3 * number or 1)))
    check(lambda: helpers.Each(paths, lambda path: (pipeline(opened_from(kind, path)),)))


# -- every format -------------------------------------------------------------------------------------------


def saved(kind: str, mode: str, **options: Any) -> bytes:
    stream = BytesIO()
    image = picture(60, 47, {"I;16": "I", "LA": "RGBA", "PA": "P"}.get(mode, mode))
    image.convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def ycck() -> bytes:
    """A CMYK file that says of itself, in Adobe's marker, that it is YCCK."""
    data = bytearray(saved("JPEG", "CMYK"))
    data[data.index(b"Adobe") + 11] = 2
    return bytes(data)


def animated() -> bytes:
    stream = BytesIO()
    frames = [picture(60, 47, seed=seed) for seed in range(3)]
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:])
    return stream.getvalue()


FORMATS: dict[str, Callable[[], bytes]] = {
    "grey": partial(saved, "JPEG", "L"),
    "cmyk": partial(saved, "JPEG", "CMYK"),
    "ycck": ycck,
    "progressive": partial(saved, "JPEG", "RGB", progressive=True),
    "rgb-jpeg": partial(saved, "JPEG", "RGB", keep_rgb=True),
    "arithmetic-like-header": lambda: saved("JPEG", "RGB").replace(b"\xff\xc0", b"\xff\xc9", 1),
    "cut": lambda: saved("JPEG", "RGB")[:700],
    **{f"exif-{n}": partial(saved, "JPEG", "RGB", exif=helpers.exif(n)) for n in (1, 3, 6)},
    **{f"png-{mode}": partial(saved, "PNG", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")},
    "png-transparent-grey": partial(saved, "PNG", "L", transparency=3),
    "png-transparent-rgb": partial(saved, "PNG", "RGB", transparency=(1, 2, 3)),
    "png-transparent-palette": partial(saved, "PNG", "P", transparency=2),
    "png-cut": lambda: saved("PNG", "RGB")[:700],
    **{f"webp-{mode}": partial(saved, "WEBP", mode) for mode in ("RGB", "RGBA")},
    **{f"bmp-{mode}": partial(saved, "BMP", mode) for mode in ("1", "L", "P", "RGB")},
    **{f"tiff-{mode}": partial(saved, "TIFF", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")},
    **{f"tiff-{mode}": partial(saved, "TIFF", mode) for mode in ("I", "F", "I;16", "LAB")},
    "tiff-turned": partial(saved, "TIFF", "RGB", exif=helpers.exif(6)),
    "gif": partial(saved, "GIF", "P"),
    "gif-grey": partial(saved, "GIF", "L"),
    "gif-animated": animated,
    "text": lambda: b"no picture at all",
}


@cache
def content(name: str) -> bytes:
    return FORMATS[name]()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
def test_formats(name: str) -> None:
    data = content(name)

    def run(mode: str | None) -> Any:
        def opened() -> Image.Image:
            image = Image.open(BytesIO(data))
            return image.convert(mode) if mode else image

        return [helpers.outcome(lambda: pipeline(opened())) for pipeline in PIPELINES.values()]  # noqa: B023

    for mode in (None, "RGB", "L"):
        assert_equal_runs(lambda: run(mode), lazy=mode == "RGB")  # noqa: B023


@pytest.mark.parametrize("make", [tv_tensors.Image, v2.functional.to_image])
def test_a_tv_tensor_of_a_pillow_image(paths: list[str], make: Callable[[Any], Any]) -> None:
    def run() -> list[Any]:
        return [torch.stack([make(Image.open(path).convert("RGB").resize((30, 20))) for path in paths])]

    proven(run, images=len(paths))
