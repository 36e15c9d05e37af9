"""torchvision.transforms.v2: from Pillow images and, after ToImage(), in torch's own uint8 arithmetic."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2

import accel
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from tests.support.helpers import Files, assert_equal_runs, jpeg, known, pictures, python, run
from tests.support.transforms import OF_BOTH, OF_V2, made

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SCALED = v2.ToDtype(torch.float32, scale=True)
BY_TYPE = v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)

STAYS_LATE = {
    "train": [v2.ToImage(), v2.RandomResizedCrop(64), v2.RandomHorizontalFlip(), SCALED, v2.Normalize(MEAN, STD)],
    "eval": [v2.ToImage(), v2.Resize(70), v2.CenterCrop(64), SCALED, v2.Normalize(MEAN, STD), v2.ToPureTensor()],
    "pure": [v2.PILToTensor(), v2.RandomResizedCrop(33), v2.RandomVerticalFlip(), SCALED],
    "bicubic": [v2.ToImage(), v2.Resize((50, 37), interpolation=InterpolationMode.BICUBIC), SCALED],
    "lanczos": [v2.ToImage(), v2.Resize((50, 37), interpolation=InterpolationMode.LANCZOS), SCALED],
    "point": [v2.ToImage(), v2.Resize((50, 37), antialias=False), SCALED],
    "bicubic-point": [v2.ToImage(), v2.Resize((5, 7), InterpolationMode.BICUBIC, antialias=False), SCALED],
    "nearest": [v2.ToImage(), v2.Resize((90, 17), InterpolationMode.NEAREST)],
    "nearest-exact": [v2.ToImage(), v2.Resize((90, 97), InterpolationMode.NEAREST_EXACT), SCALED],
    "larger-crop": [v2.ToImage(), v2.CenterCrop((180, 90)), SCALED],
    "padded-crop": [v2.ToImage(), v2.RandomCrop(60, padding=5, pad_if_needed=True), SCALED],
    "pad-edge": [v2.ToImage(), v2.Resize(40), v2.Pad((1, 2, 3, 4), padding_mode="edge"), SCALED],
    "pad-reflect": [v2.ToImage(), v2.Resize(40), v2.Pad(5, padding_mode="reflect"), v2.Resize(30), SCALED],
    "pad-fill": [v2.ToImage(), v2.Resize(40), v2.Pad(3, fill=9), v2.Resize(30), v2.ToDtype(torch.float16, scale=True)],
    "several": [v2.ToImage(), v2.Resize(60), v2.Resize(31, max_size=50), v2.Resize((77, 80)), SCALED],
    "both-dialects": [v2.Resize(60), v2.RandomCrop(50), v2.ToImage(), v2.Resize(31), SCALED],
    "pillow": [v2.Resize(60), v2.Pad(4, fill=7), v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), v2.ToImage()],
    "by-type": [v2.ToImage(), v2.Resize(40), BY_TYPE],
    "by-type-others": [
        v2.PILToTensor(),
        v2.ToDtype({tv_tensors.Mask: torch.int64, "others": torch.float16}, scale=True),
    ],
    "by-type-none": [v2.PILToTensor(), v2.ToDtype({tv_tensors.Image: torch.float32, "others": None})],
    "blur": [v2.ToImage(), v2.Resize(40), v2.GaussianBlur(3), v2.ToPureTensor()],
    "resize-of-floats": [v2.ToImage(), SCALED, v2.Resize((40, 31))],
    "float-fill": [v2.ToImage(), v2.Pad(3, fill=7.5)],
}


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal in type, dtype and every value. Memory order is not compared: a lazy tensor's is dense, while
    torchvision's crops of tensors are views."""
    assert isinstance(found, type(expected))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert torch.equal(found, expected), f"{int((found != expected).sum())} of {expected.numel()} values differ"


@pytest.mark.parametrize("name", STAYS_LATE)
def test_pipelines(name: str) -> None:
    steps: list[Any] = STAYS_LATE[name]
    normalizes = any(isinstance(step, v2.Normalize) for step in steps)

    def results() -> list[torch.Tensor]:
        grey, others = v2.Compose([v2.RGB(), *steps] if normalizes else steps), v2.Compose(steps)
        return [(grey if each.name == "grey" else others)(each.open()) for each in pictures()[:7] for _ in range(3)]

    try:
        expected, states = run("torchvision", results)
    except NotImplementedError as error:
        pytest.skip(f"this torch cannot: {error}")
    made, states_after = run("cpu", results)
    assert states_after == states
    for picture, found, right in zip([each for each in pictures()[:7] for _ in range(3)], made, expected, strict=True):
        assert isinstance(found, LazyTensorBase) or (picture.name == "grey" and normalizes)
        same(found, right)


def test_the_dialects_differ() -> None:
    """So that a kernel of the wrong one would be noticed above."""
    picture = pictures()[0]
    with accel.image_backend("cpu"):
        pillow = v2.Compose([v2.Resize(64), v2.PILToTensor()])(picture.open())
        torchs = v2.Compose([v2.PILToTensor(), v2.Resize(64)])(picture.open())
        point = v2.Compose([v2.PILToTensor(), v2.Resize(64, antialias=False)])(picture.open())
        assert isinstance(torchs, LazyTensorBase)
        assert not torch.equal(pillow, torchs)
        assert not torch.equal(point, torchs)


def test_a_resize_to_the_same_size_is_the_same_object() -> None:
    with accel.image_backend("cpu"):
        image = v2.functional.to_image(pictures()[0].open())
        assert v2.functional.resize(image, list(image.shape[-2:])) is image


@pytest.mark.parametrize("made", [v2.ToImage(), v2.PILToTensor(), T.ToTensor()], ids=lambda made: type(made).__name__)
def test_colours_of_grey_lie_in_memory_as_torchvisions(made: Callable[[Any], Any]) -> None:
    assert_equal_runs(lambda: v2.RGB()(made(pictures()[3].open())))


@pytest.mark.parametrize("function", [v2.functional.adjust_contrast, T.functional.adjust_contrast], ids=["v2", "v1"])
def test_contrast_of_a_grey_crop_adds_up_as_torchvisions(function: Callable[..., Any]) -> None:
    """Its mean is that of a view of a larger tensor."""

    data = jpeg(291, 213, "L")

    def run() -> list[Any]:
        image = T.ToTensor()(Image.open(BytesIO(data)))
        crops = [T.functional.center_crop(image, [3 * size, 4 * size + 1]) for size in range(2, 40)]
        crops += [T.functional.center_crop(crop, [5, 8]) for crop in crops]
        return [function(crop, 0.7) + 0 for crop in crops]

    assert_equal_runs(run)


UNPADDED = (v2.Pad(0), T.Pad([0, 0]), v2.Pad((0, 0, 0, 1)), v2.Pad(0, padding_mode="edge"))


@pytest.mark.parametrize(
    "made", [[v2.ToImage()], [v2.PILToTensor()], [v2.ToImage(), SCALED]], ids=["image", "uint8", "float"]
)
def test_a_pad_by_nothing_lies_in_memory_as_torchvisions(made: list[Any]) -> None:
    def run() -> Any:
        padded = [v2.Compose([*made, pad])(pictures()[0].open()) for pad in UNPADDED]
        return padded, [v2.GaussianNoise()(each) for each in padded]  # which fills memory in its order

    assert_equal_runs(run)


def brighter(image: torch.Tensor) -> torch.Tensor:
    """A transform of somebody's own."""
    return image.clamp(min=9)


def test_what_is_computed_early_is_counted(paths: list[str]) -> None:
    """And named, where a batch of it could have been one program."""
    steps = [v2.ToImage(), v2.Resize((40, 31)), v2.ColorJitter(0.4), brighter, SCALED]
    accel.set_image_backend("cpu")
    before = accel.stats()
    files = Files(paths, v2.Compose(steps))
    list(DataLoader(files, 3, num_workers=1))
    after = accel.stats()
    assert after["computed early"] - before["computed early"] == len(files)
    for entry, what in (("fallbacks", " asked for the values of a single tensor"), ("computed early by", "")):
        counts = {each: n - before[entry].get(each, 0) for each, n in after[entry].items()}
        assert [
            n
            for each, n in counts.items()
            if n and each.startswith("brighter (test_v2.py:") and each.endswith(f"){what}")
        ] == [len(files)], counts


WITHOUT_VECTORS = """
import sys
import torch
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
import accel
from accel.lazy.tensor_base import LazyTensorBase
assert torch.backends.cpu.get_cpu_capability() == "DEFAULT"
from io import BytesIO
from PIL import Image
file = BytesIO()
Image.radial_gradient("L").resize((10, 4)).convert("RGB").save(file, "JPEG")
lazy = []
for mode in InterpolationMode:
    for antialias in (True, False):
        for size in ((166, 205), (3, 7), (90, 41), (7, 1)):  # nearest-exact differs at the first
            both = []
            for backend in ("torchvision", "cpu"):
                with accel.image_backend(backend):
                    image = v2.functional.to_image(Image.open(file))
                    try:
                        made = v2.functional.resize(image, list(size), mode, antialias=antialias)
                    except Exception as error:
                        made = type(error), str(error)
                    if isinstance(made, LazyTensorBase):
                        lazy.append(mode.value)
                        made = made.clone() + 0
                    both.append(made if isinstance(made, tuple) else made.as_subclass(torch.Tensor))
            one, other = both
            same = one == other if isinstance(one, tuple) or isinstance(other, tuple) else torch.equal(one, other)
            assert same, (mode, antialias, size)
print(*sorted(set(lazy)))
"""


@pytest.mark.sweep
def test_a_machine_without_vector_instructions() -> None:
    """torch computes some resizes otherwise there; those are left to its own kernels, later."""
    lazy = python(WITHOUT_VECTORS, environment={"ATEN_CPU_CAPABILITY": "default"}).split()
    assert {"nearest", "bilinear"} <= set(lazy)


# -- samples: boxes, masks, keypoints and labels beside images, in tuples and dicts ----------------------------------


FIRST = {"pillow": v2.Identity(), "tensor": v2.PILToTensor(), "image": v2.ToImage()}

POLICIES = ("AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix")
"""Which refuse samples with boxes or masks."""

OTHERS = {
    "takes not all of these images": ("Normalize", "ConvertImageDtype", "LinearTransformation", "GaussianNoise"),
    "takes no boxes": ("RandomCrop", "Pad", "ToPILImage"),
    "makes several": ("FiveCrop", "TenCrop"),
}

TRANSFORMS: dict[str, Callable[[], Any]] = {
    **{name: partial(made, name, v2) for name in {**OF_BOTH, **OF_V2} if name not in sum(OTHERS.values(), POLICIES)},
    "shorter": lambda: v2.Resize(25, max_size=33),
    "crop": lambda: v2.RandomCrop(30, padding=3),
    "pad": lambda: v2.Pad((1, 2, 3, 4), fill=7),
    "iou-crop": lambda: v2.RandomIoUCrop(),
    "noise": lambda: v2.Compose([v2.ToImage(), SCALED, v2.GaussianNoise()]),
    "lambda": lambda: v2.Lambda(lambda leaf: leaf, tv_tensors.Image, Image.Image),
    "to-pil": lambda: v2.Compose([v2.ToImage(), v2.ToPILImage()]),
    "sanitize": lambda: v2.Compose([v2.RandomCrop(12), v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes(min_size=6)]),
    "keypoints": lambda: v2.Compose([v2.RandomCrop(20), v2.ClampKeyPoints()]),
    "format": lambda: v2.ConvertBoundingBoxFormat("CXCYWH"),
}


def image() -> Image.Image:
    return Image.open(BytesIO(jpeg(60, 40))).convert("RGB")


def target() -> dict[str, Any]:
    size: Any = (40, 60)
    return {
        "boxes": tv_tensors.BoundingBoxes([[3, 4, 30, 31], [20, 8, 55, 39]], format="XYXY", canvas_size=size),
        "masks": tv_tensors.Mask((torch.arange(2400).view(1, 40, 60) % 7).to(torch.uint8)),
        "keypoints": tv_tensors.KeyPoints([[5, 6], [59, 39], [30, 2]], canvas_size=size),
        "labels": torch.tensor([3, 1]),
        "name": "cat",
    }


def same_samples(
    make: Callable[[], Any], first: Any, sample: Callable[[], tuple[Any, ...]], seeds: int = 4
) -> list[Any]:
    """Check samples against torchvision's; how they came out under accel."""

    def several() -> list[Any]:
        results = []
        for _ in range(seeds):
            try:
                results.append(known(v2.Compose([first, make()])(*sample())))
            except Exception as error:
                results.append((type(error), str(error).split(" supports inputs of type ")[0]))
        return results

    return assert_equal_runs(several, 1)  # type: ignore[no-any-return]


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.filterwarnings("ignore:RandomErasing.* passing through", "ignore:.*deprecated")
def test_transforms(name: str, first: Any) -> None:
    results = same_samples(TRANSFORMS[name], first, lambda: (image(), target()))
    results += [
        tuple(each) for each in same_samples(TRANSFORMS[name], first, lambda: ({"image": image(), **target()},))
    ]
    if name not in ("iou-crop", "sanitize"):  # they need boxes
        results += same_samples(TRANSFORMS[name], first, lambda: (image(), 3))
    assert not any(isinstance(result[0], type) for result in results), "torchvision can do it"


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str, first: Any) -> None:
    same_samples(partial(made, name, v2), first, lambda: (image(), 3))
    same_samples(partial(made, name, v2), first, lambda: ({"image": image(), "label": 3},))
    refused = same_samples(partial(made, name, v2), first, lambda: (image(), target()), 1)
    assert refused[0][0] is TypeError


FILLS: list[dict[Any, Any]] = [
    {tv_tensors.Image: 9, "others": 0},
    {tv_tensors.Image: (1, 2, 3), Image.Image: 7, torch.Tensor: 5, "others": 0},
    {Image.Image: (9, 8, 7), "others": 3},
    {tv_tensors.Mask: 4, tv_tensors.Image: 6},
    {"others": 8},
]
FILLED: dict[str, Callable[[Any], Any]] = {
    "pad": lambda fill: v2.Pad(3, fill=fill),
    "crop": lambda fill: v2.RandomCrop(70, pad_if_needed=True, fill=fill),
    "rotation": lambda fill: v2.RandomRotation(30, fill=fill),
    "affine": lambda fill: v2.RandomAffine(20, (0.1, 0.1), fill=fill),
    "perspective": lambda fill: v2.RandomPerspective(p=1.0, fill=fill),
    "zoom-out": lambda fill: v2.RandomZoomOut(fill=fill, p=1.0),
    "elastic": lambda fill: v2.ElasticTransform(fill=fill),
    "randaugment": lambda fill: v2.RandAugment(fill=fill),
    "trivialaugment": lambda fill: v2.TrivialAugmentWide(fill=fill),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("fill", FILLS, ids=range(len(FILLS)))
@pytest.mark.parametrize("name", FILLED)
def test_fills_by_type(name: str, fill: dict[Any, Any], first: Any) -> None:
    """A lazy image is looked up as what it stands for."""
    same_samples(lambda: FILLED[name](dict(fill)), first, lambda: (image(), 3), 2)


def test_a_fill_of_another_type_would_be_seen() -> None:
    with accel.image_backend("cpu"):
        lazy = v2.functional.to_image(image())
        padded = [v2.Pad(3, fill={kind: 9, "others": 0})(lazy) for kind in (tv_tensors.Image, torch.Tensor)]
        assert all(map(is_lazy, padded))
        assert [int(each[0, 0, 0]) for each in padded] == [9, 0]


DTYPES: list[dict[Any, Any]] = [
    {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None},
    {torch.Tensor: torch.float16, "others": None},
    {"others": torch.float64},
    {tv_tensors.Mask: torch.int64},
]


@pytest.mark.parametrize("first", [FIRST["tensor"], FIRST["image"]], ids=["tensor", "image"])
@pytest.mark.parametrize("dtypes", DTYPES, ids=range(len(DTYPES)))
@pytest.mark.filterwarnings("ignore:scale was set to True")
def test_dtypes_by_type(dtypes: dict[Any, Any], first: Any) -> None:
    same_samples(lambda: v2.ToDtype(dtypes, scale=True), first, lambda: (image(), target()), 1)
    same_samples(lambda: v2.ToDtype(dtypes, scale=True), first, lambda: (image(), 3), 1)
