"""torchvision's v1 transforms end to end: the same tensors, bit for bit, and the same random states after.

``ACCEL_TEST_PHOTOS=DIR`` runs the pipelines on the JPEG files of a folder instead of the tests' own pictures.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.exact import COLOUR, EVAL, GREY, MEAN, PADDINGS, PHOTOS, PICTURES, STD, TRAIN, check, rgb
from tests.support.helpers import Named, assert_equal_runs, is_lazy
from tests.support.steps import FILTERS

# -- the usual recipes --------------------------------------------------------------------------------------

CIFAR = T.Compose([T.RandomCrop(32, 4, pad_if_needed=True), T.RandomHorizontalFlip(), T.ToTensor()])

RECIPES: dict[str, Callable[[Any], Any]] = {
    "train": TRAIN,
    "train-224": T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)]),
    "eval": EVAL,
    "eval-256-224": T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(MEAN, STD)]),
    "cifar": CIFAR,
    "tensor": T.ToTensor(),
    "tensor-normalize": T.Compose([T.ToTensor(), T.Normalize(MEAN, STD)]),
    "uint8": T.Compose([T.Resize((40, 50)), T.PILToTensor()]),
    "uint8-float": T.Compose([T.PILToTensor(), T.ConvertImageDtype(torch.float32), T.Normalize(MEAN, STD)]),
    "small-crop": T.Compose([T.RandomCrop(1, pad_if_needed=True), T.ToTensor()]),
    "many": T.Compose(
        [
            T.Pad(3, (9, 8, 7)),
            T.RandomVerticalFlip(),
            T.Resize(90),
            T.RandomCrop(70),
            T.RandomHorizontalFlip(),
            T.Resize((31, 47), Mode.BICUBIC),
            T.Pad((1, 2), padding_mode="reflect"),
            T.CenterCrop((20, 60)),
            T.ToTensor(),
        ]
    ),
    "random-apply": T.Compose([T.RandomApply([T.Resize(30), T.Pad(2)], p=0.5), T.ToTensor()]),
    "random-choice": T.Compose([T.RandomChoice([T.Resize(30), T.Pad(2), T.CenterCrop(9)]), T.ToTensor()]),
    "random-order": T.Compose([T.RandomOrder([T.Resize(30), T.Pad(2), T.CenterCrop(9)]), T.ToTensor()]),
}


@pytest.mark.parametrize("transform", RECIPES.values(), ids=RECIPES)
def test_recipes(transform: Callable[[Any], Any]) -> None:
    for seed in (0, 100) if PHOTOS else (0, 100, 200):
        check(transform, lazy=True if seed == 0 else None, seed=seed)


def test_wrong_variants_would_be_seen() -> None:
    """The comparison tells other filters, other crops and other flips apart."""
    right = T.Compose([T.Resize(72), T.CenterCrop(64), T.ToTensor()])
    size = (72, 96)
    actual, _ = helpers.run("cpu", lambda: right(rgb(COLOUR)))
    wrong: list[Callable[[Any], Any]] = [
        T.Compose([T.Resize(72, mode), T.CenterCrop(64), T.ToTensor()]) for mode in FILTERS if mode != Mode.BILINEAR
    ]
    wrong.append(lambda image: F.to_tensor(F.crop(F.resize(image, size), 4, 15, 64, 64)))  # torchvision's is at 16
    wrong.append(lambda image: F.to_tensor(F.crop(F.resize(image, size), 5, 16, 64, 64)))
    wrong.append(lambda image: F.to_tensor(F.hflip(F.center_crop(F.resize(image, size), 64))))
    wrong.append(lambda image: F.center_crop(F.resize(F.to_tensor(image), size, antialias=True), 64))
    wrong.append(lambda image: F.center_crop(F.resize(F.to_tensor(image), size, antialias=False), 64))
    wrong.append(
        lambda image: F.convert_image_dtype(F.center_crop(F.resize(F.pil_to_tensor(image), size, antialias=False), 64))
    )
    expected = right(rgb(COLOUR))
    assert actual.equal(expected)
    for transform in wrong:
        other = transform(rgb(COLOUR))
        assert other.shape == expected.shape
        assert not other.equal(expected)


# -- geometry -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", FILTERS, ids=lambda mode: mode.value)
def test_filters_of_random_resized_crops(mode: Mode) -> None:
    check(T.Compose([T.RandomResizedCrop((40, 56), interpolation=mode), T.ToTensor()]), lazy=True)


RESIZES: dict[str, dict[str, Any]] = {
    "int": {"size": 50},
    "list-1": {"size": [50]},
    "list-2": {"size": [50, 40]},
    "max-size": {"size": 50, "max_size": 60},
    "max-size-cuts": {"size": 50, "max_size": 51},
    "larger": {"size": 400, "max_size": 401},
    "antialias": {"size": 50, "antialias": True},
    "no-antialias": {"size": 50, "antialias": False},
    "antialias-none": {"size": 50, "antialias": None},
    "filter-int": {"size": 50, "interpolation": 3},
    "same": {"size": (150, 200)},
}


@pytest.mark.parametrize("options", RESIZES.values(), ids=RESIZES)
def test_forms_of_resize(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some forms warn; that the warnings stay is tested below
        check(T.Compose([T.Resize(**options), T.ToTensor()]), pictures=helpers.pictures())


def test_a_resize_that_changes_nothing_returns_the_same_object() -> None:
    with accel.image_backend("cpu"):
        image = rgb(COLOUR)
        assert F.resize(image, [150, 200]) is image
        assert F.resize(image, 150) is image


WARNS: dict[str, Callable[[Any], Any]] = {
    "filter-int": lambda image: F.resize(image, [40], 3),  # type: ignore[arg-type]
    "no-antialias": lambda image: F.resize(image, [40], antialias=False),
    "to-pil": lambda image: F.to_pil_image(F.pil_to_tensor(image)),
    "rotate": lambda image: F.rotate(image, 20, interpolation=2),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("transform", WARNS.values(), ids=WARNS)
def test_warnings_are_the_same(transform: Callable[[Any], Any]) -> None:
    def caught(backend: str) -> list[tuple[type[Warning], str]]:
        with accel.image_backend(backend), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            transform(rgb(COLOUR))
        return [(warning.category, str(warning.message)) for warning in warned]

    assert caught("cpu") == caught("torchvision")


@pytest.mark.parametrize("size", [1, 10, 64, 151, 500, (1, 300), (300, 1), (37, 90), (151, 201)], ids=str)
def test_center_crops(size: Any) -> None:
    check(T.Compose([T.CenterCrop(size), T.ToTensor()]), lazy=True, pictures=helpers.pictures())


def _corner(offset: int) -> Iterator[tuple[int, int, int, int]]:
    width, height = 131, 97
    for top in (0, offset, height - 9 - offset, height - 9):
        for left in (0, offset, width - 7 - offset, width - 7):
            yield top, left, 9, 7
    yield from ((0, 0, height, width), (0, 0, height, 1), (0, 0, 1, width), (height - 1, width - 1, 1, 1))


@pytest.mark.parametrize("mode", [None, Mode.BILINEAR, Mode.LANCZOS, Mode.NEAREST], ids=str)
@pytest.mark.parametrize("offset", [1, 8, -3], ids=str)
def test_crops_at_every_border(mode: Mode | None, offset: int) -> None:
    """Taps end at the crop's border, not at the picture's; where a crop leaves the picture it shows black."""

    def transform(image: Any, box: tuple[int, int, int, int]) -> Any:
        if mode is None:
            return F.to_tensor(F.crop(image, *box))
        return F.to_tensor(F.resized_crop(image, *box, size=[23, 31], interpolation=mode))

    boxes = [partial(transform, box=box) for box in _corner(offset)]
    check(*boxes, lazy=True, pictures=[helpers.pictures()[1]])


def test_columns_and_rows_of_one_pixel() -> None:
    """Where decoders of regions go wrong: at the borders of files with shared chroma."""
    for picture in helpers.pictures():
        width, height = picture.open().size
        lefts = sorted({0, 1, width // 2, width - 2, width - 1} & set(range(width)))
        tops = sorted({0, 1, height // 2, height - 2, height - 1} & set(range(height)))
        boxes = [(0, left, height, 1) for left in lefts] + [(top, 0, 1, width) for top in tops]
        check(*(lambda image, box=box: F.to_tensor(F.crop(image, *box)) for box in boxes), pictures=[picture])


@pytest.mark.parametrize("box", [(0, 900, 5, 6), (900, 0, 5, 6), (-9, -9, 3, 3), (0, -5, 200, 5)], ids=str)
def test_crops_wholly_outside(box: tuple[int, int, int, int]) -> None:

    def transform(image: Any, size: Any) -> Any:
        image = F.crop(F.pad(image, 2, 99) if size is None else F.resize(image, size), *box)
        return F.to_tensor(F.resize(image, [7, 8]))

    sizes = [partial(transform, size=size) for size in (None, [1, 1], [90, 80])]
    check(*sizes, lazy=True, pictures=helpers.pictures())


@pytest.mark.parametrize("mode", PADDINGS)
@pytest.mark.parametrize("padding", [0, 1, 30, (5,), (4, 9), (1, 2, 3, 4), [3, 0, 0, 40], (300, 0, 0, 200)], ids=str)
def test_pads(mode: str, padding: Any) -> None:
    check(T.Compose([T.Pad(padding, padding_mode=mode), T.ToTensor()]), pictures=helpers.pictures())


@pytest.mark.parametrize(
    "fill", [0, 255, 300, -4, 7.9, 200.5, True, (1, 2, 3), [9, 8, 7], (9,), (1.5, 2.5, 300.0), "red", None], ids=str
)
def test_fills(fill: Any) -> None:
    check(lambda image: F.to_tensor(F.pad(image, (2, 3, 4, 5), fill)), pictures=helpers.pictures())
    check(lambda image: F.to_tensor(F.pad(image.convert("L"), (2, 3, 4, 5), fill)), pictures=[GREY])
    for picture in (COLOUR, GREY):

        def transform(picture: Named = picture) -> Any:
            return helpers.outcome(lambda: F.to_tensor(F.pad(picture.open(), [3], fill)))

        assert_equal_runs(transform)


@pytest.mark.parametrize("padding", [-1, (-5, 3), (-3, -4, 5, 6), (10, -20, -30, 5), -40, -100], ids=str)
@pytest.mark.parametrize("mode", PADDINGS)
def test_negative_pads(padding: Any, mode: str) -> None:
    check(lambda image: F.to_tensor(F.pad(image, padding, 7, mode)), pictures=helpers.pictures())


@pytest.mark.parametrize("mode", PADDINGS)
@pytest.mark.parametrize("padding", [None, 4, (30, 2)], ids=str)
@pytest.mark.parametrize("fill", [0, (9, 99, 199)], ids=str)
def test_random_crops(mode: str, padding: Any, fill: Any) -> None:
    crop = T.RandomCrop((60, 70), padding=padding, pad_if_needed=True, fill=fill, padding_mode=mode)
    check(T.Compose([crop, T.ToTensor()]), pictures=helpers.pictures())
    check(T.Compose([T.RandomCrop(40, padding=padding, padding_mode=mode), T.ToTensor()]), pictures=helpers.pictures())


@pytest.mark.parametrize("crop", [T.FiveCrop(40), T.TenCrop((30, 44)), T.TenCrop(40, vertical_flip=True)], ids=repr)
def test_five_and_ten_crops(crop: Any) -> None:
    tensor, normalize = T.ToTensor(), T.Normalize(MEAN, STD)
    stacked = T.Compose([T.Resize(64), crop, T.Lambda(lambda crops: torch.stack([tensor(each) for each in crops]))])
    check(stacked, lazy=True)
    check(T.Compose([T.Resize(64), crop, T.Lambda(lambda crops: [normalize(tensor(each)) for each in crops])]))

    def batch() -> Any:
        return torch.utils.data.default_collate([stacked(rgb(picture)) for picture in PICTURES[:4]])

    assert assert_equal_runs(batch).shape[:2] == (4, 5 if isinstance(crop, T.FiveCrop) else 10)
    assert is_lazy(helpers.run("cpu", batch)[0])


# -- sizes --------------------------------------------------------------------------------------------------

SIZES = [(1, 1), (1, 2), (2, 1), (3, 3), (7, 9), (8, 8), (16, 17), (1, 300), (300, 1), (33, 64), (500, 375)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_file_sizes_up_and_down(size: tuple[int, int], subsampling: int) -> None:
    picture = Named("sized", helpers.jpeg(*size, subsampling=subsampling))
    resizes = [T.Compose([T.Resize(target), T.ToTensor()]) for target in ((1, 1), (224, 224), (5, 400))]
    check(*resizes, TRAIN, lazy=True, pictures=[picture])


@pytest.mark.parametrize("progressive", [False, True])
def test_a_large_file(progressive: bool) -> None:
    picture = Named("large", helpers.jpeg(2000, 1500, subsampling=2, progressive=progressive))
    small = T.Compose([T.RandomResizedCrop(224, scale=(0.01, 0.05)), T.ToTensor()])
    centre = T.Compose([T.CenterCrop(2), T.Resize((300, 400)), T.PILToTensor()])
    check(RECIPES["eval-256-224"], small, centre, lazy=True, pictures=[picture], seed=3)


# -- grey ---------------------------------------------------------------------------------------------------

GEOMETRY: dict[str, Callable[[Any], Any]] = {
    "resize": T.Resize((33, 45)),
    "nearest": T.Resize((33, 45), Mode.NEAREST),
    "crop": T.CenterCrop(50),
    "outside": T.CenterCrop(200),
    "pad": T.Pad(5, 77),
    "flip": T.RandomVerticalFlip(1),
}


@pytest.mark.parametrize("step", GEOMETRY.values(), ids=GEOMETRY)
@pytest.mark.parametrize("when", ["never", "before", "after", "loader"])
def test_grey_files(step: Callable[[Any], Any], when: str) -> None:
    for picture in (GREY, helpers.pictures()[9], COLOUR):

        def transform(picture: Named = picture) -> Any:
            image = picture.open()
            if when == "before":
                image = image.convert("RGB")
            image = step(image)
            return F.to_tensor(image.convert("RGB") if when == "after" else image)

        assert is_lazy(helpers.run("cpu", transform)[0])
        assert_equal_runs(transform)


def test_grey_to_rgb_and_back() -> None:
    for change in (
        lambda image: image.convert("RGB").convert("L"),
        lambda image: image.convert("L").resize((20, 20)),
        lambda image: T.Grayscale(3)(image).resize((20, 20)),
        lambda image: T.Grayscale(1)(image.convert("RGB")),
    ):
        for picture in (GREY, COLOUR):
            assert_equal_runs(lambda: F.to_tensor(change(picture.open())))  # noqa: B023


# -- transforms that accel does not record ------------------------------------------------------------------

REALISED: dict[str, Callable[[Any], Any]] = {
    "point": T.Lambda(lambda image: image.point(lambda level: level // 2)),
    "numpy": T.Lambda(lambda image: Image.fromarray(np.asarray(image)[::-1].copy())),
    "clamp": T.Compose([T.ToTensor(), T.Lambda(lambda tensor: (tensor * 2 - 1).clamp(-1, 1)), T.ToPILImage()]),
    "PIL": T.Compose([T.ToTensor(), T.ToPILImage()]),
}


@pytest.mark.parametrize("name", REALISED)
def test_transforms_that_nobody_records(name: str) -> None:
    """Before, between and after steps that are recorded."""
    pictures = [picture for picture in helpers.pictures() if min(picture.open().size) > 60][:3]
    around = [T.RandomCrop(50), T.RandomHorizontalFlip(), REALISED[name], T.Resize(33), T.Pad(2), T.ToTensor()]
    for seed in range(3):
        check(T.Compose([REALISED[name], T.ToTensor()]), pictures=pictures, seed=seed)
        check(T.Compose(around), pictures=pictures, seed=10 + seed)


def test_transforms_do_realise_here() -> None:
    """Else the test above would prove nothing about the seam between lazy and plain pixels."""
    with accel.image_backend("cpu"):
        assert not is_lazy(REALISED["numpy"](rgb(COLOUR)))
        assert not is_lazy((T.ToTensor()(rgb(COLOUR)) * 2 - 1).clamp(-1, 1))
