"""Pillow's resize with a box or a reducing gap, reduce, thumbnail and extents on lazy images: lazy, and Pillow's."""

import itertools
from inspect import getsource
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageTransform
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

import accel
from accel.lazy import pillow_methods
from tests.support import helpers
from tests.support.backends import Backend
from tests.support.helpers import is_lazy, outcome

FILTERS = list(Image.Resampling)[:6]
SIZES = [(120, 90), (97, 61), (31, 200), (1, 40), (64, 3)]
CASES = 60


def opened(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    return Image.open(BytesIO(helpers.jpeg(*size, mode)))


def check(*makers: Any, lazy: bool = True) -> None:
    """Each gives the same of a lazy image as of Pillow's, and as an error the same."""

    def run() -> Any:
        made = [outcome(make) for make in makers]
        assert [is_lazy(each) for each in made] == [lazy and accel.get_image_backend() == "cpu"] * len(made)
        return made, [getattr(each, "info", None) for each in made]

    helpers.assert_equal_runs(run)


def random_box(rng: np.random.Generator, size: tuple[int, int], *, whole: bool = False) -> tuple[float, ...]:
    def span(length: int) -> tuple[float, float]:
        first, last = sorted(rng.uniform(0, length, 2))
        if whole:
            first, last = int(first), min(int(last) + 1, length)
        return first, max(last, first + 0.01) if not whole else last

    (left, right), (top, bottom) = span(size[0]), span(size[1])
    return left, top, right, bottom


@pytest.mark.parametrize("case", range(CASES))
def test_resize_of_a_box(case: int) -> None:
    rng = np.random.default_rng(case)
    size = SIZES[case % len(SIZES)]
    box = random_box(rng, size, whole=case % 3 == 0)
    to = tuple(int(length) for length in rng.integers(1, 90, 2))
    gap = [None, None, 1.0, 1.5, 3][case % 5]
    mode = "L" if case % 4 == 3 else "RGB"
    check(lambda: opened(size, mode).convert(mode).resize(to, FILTERS[case % 6], box, gap))


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("gap", [1.0, 2, 3.0])
def test_resize_with_a_gap(filter: int, gap: float) -> None:
    sizes = [(10, 8), (7, 7), (60, 45), (119, 2), (300, 200)]
    check(*(lambda to=to: opened((120, 90)).convert("RGB").resize(to, filter, reducing_gap=gap) for to in sizes))


@pytest.mark.parametrize("box", [(10, 20, 50, 60), (10.0, 20.0, 50.0, 60.0), (0, 0, 40, 40)])
def test_a_box_of_the_size_asked_for_is_a_crop(box: Any) -> None:
    check(lambda: opened((120, 90)).resize((40, 40), Image.Resampling.BILINEAR, box))


@pytest.mark.parametrize("box", [None, (0, 0, 97, 61), (3, 5, 90, 60), (96, 60, 97, 61), (10, 0, 31, 61)])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_reduce(box: Any, mode: str) -> None:
    def made(*factors: Any) -> list[Any]:
        return [lambda factor=factor: opened((97, 61), mode).reduce(factor, box) for factor in factors]

    check(*made(2, 3, 4, 5, 6, 9, (1, 2), (7, 1), (3, 2), (200, 3), [2, 2]))
    whole = box in (None, (0, 0, 97, 61)) or "crop" in getsource(Image.Image.reduce)
    check(*made(1, (1, 1)), lazy=whole)  # Pillow 11 makes a crop by reducing by one


WRONG: list[Any] = [
    lambda image: image.reduce(0),
    lambda image: image.reduce(2, (0, 0, 98, 61)),
    lambda image: image.reduce(2, (5, 5, 5, 9)),
    lambda image: image.reduce(2.5),
    lambda image: image.reduce("a"),
    lambda image: image.resize((5, 5), box=(-1, 0, 9, 9)),
    lambda image: image.resize((5, 5), box=(0, 0, 99, 9)),
    lambda image: image.resize((5, 5), box=(9, 9, 3, 12)),
    lambda image: image.resize((5, 5), box=(0, 0, 9)),
    lambda image: image.resize((5, 5), box=(float("nan"), 0, 9, 9)),
    lambda image: image.resize((5, 5), reducing_gap=0.5),
    lambda image: image.resize((5, 5), 77),
    lambda image: image.resize((0, 5), reducing_gap=2.0),
    lambda image: image.transform((0, 5), Image.Transform.EXTENT, (0, 0, 9, 9)),
    lambda image: image.transform((5, 5), Image.Transform.EXTENT, (0, 0, 9)),
]


def test_wrong_arguments_raise_what_pillow_raises() -> None:
    check(*(lambda make=make: make(opened((97, 61))) for make in WRONG), lazy=False)


@pytest.mark.parametrize("prepare", ["opened", "loaded", "converted", "resized"])
@pytest.mark.parametrize("to", [(40, 40), (13, 200), (500, 500), (20.7, 9.3), (1, 1)])
@pytest.mark.parametrize("gap", [2.0, None, 1.1])
def test_thumbnail(prepare: str, to: Any, gap: float | None) -> None:
    def run() -> Any:
        image = opened((240, 160))
        if prepare == "loaded":
            image.load()
        elif prepare == "converted":
            image = image.convert("RGB")
        elif prepare == "resized":
            image = image.resize((230, 150))
        result = image.thumbnail(to, reducing_gap=gap)  # type: ignore[func-returns-value]
        lazy.append(is_lazy(image))
        again = image.copy()
        again.thumbnail((5, 5))
        return result, image, image.size, image.info, getattr(image, "format", 0), again

    lazy: list[bool] = []
    helpers.assert_equal_runs(run)
    assert lazy[1] is (prepare != "opened" or gap is None or to == (500, 500))


@pytest.mark.parametrize("extent", [(10, 20, 60, 70), (-5.5, -3, 130.25, 95), (60, 70, 10, 20), (3.3, 4.4, 5.5, 6.6)])
def test_extent(extent: Any) -> None:
    kinds: list[Any] = [(Image.Transform.EXTENT, extent), (ImageTransform.ExtentTransform(extent), None)]
    ways = list(itertools.product([(50, 50), (33, 80), (7, 1)], kinds, [0, 2, 3]))
    check(*(lambda to=to, kind=kind, f=f: opened((120, 90)).transform(to, *kind, f) for to, kind, f in ways))


def test_in_a_batch(backend: Backend) -> None:
    def batch() -> torch.Tensor:
        images = [opened((120, 90)), opened((97, 61))]
        made = [image.resize((32, 24), Image.Resampling.LANCZOS, (1.5, 2.25, 80.75, 60)) for image in images]
        made += [image.reduce(3, (0, 0, 95, 60)).resize((32, 24), reducing_gap=1.0) for image in images]
        made += [image.transform((32, 24), Image.Transform.EXTENT, (9, 3, 50.5, 70), 2) for image in images]
        for image in images:
            image.load()
            image.thumbnail((32, 24))
            made.append(image.crop((0, 0, 32, 24)))
        return torch.stack([F.to_tensor(image) for image in made])

    backend.equals_torchvision(batch)
    with backend.chosen():
        assert "resize_box(" in accel.explain(batch())
    if backend.name == "cuda":
        assert "reduce has no kernel for the device; the host ran it" in accel.stats()["fallbacks"]


@pytest.mark.parametrize("data", [(0, 3, 16, float("inf")), (float("nan"), 1, 3, 3.5)])
def test_an_endless_extent_is_left_to_pillow(data: Any) -> None:
    check(lambda: opened((97, 61)).transform((12, 8), Image.Transform.EXTENT, data), lazy=False)


def test_what_torchvision_has_used_is_not_drafted() -> None:
    def thumbnail() -> Any:
        image = Image.open(BytesIO(helpers.jpeg(400, 300)))
        tensor = F.to_tensor(image)
        image.thumbnail((40, 40))
        return image.size, image.tobytes(), torch.stack([tensor])

    helpers.assert_equal_runs(thumbnail)


def test_a_perspective_in_which_a_pixel_has_no_place() -> None:
    """0 / 0: what Pillow makes of that is its own."""
    corners = [(0, 0), (2, 0), (2, 2), (0, 2)], [(0, -1), (2, 1), (3, 3), (3, 2)]
    check(lambda: F.perspective(opened((2, 2)), *corners, InterpolationMode.BILINEAR, [9, 8, 7]), lazy=False)


def test_the_pixels_that_may_have_no_place() -> None:
    """Those whose middle is on the horizon and on another line, in float64; few perspectives have one."""
    rng, (y, x) = np.random.default_rng(0), np.ogrid[0.5:6, 0.5:9]
    outcomes = []
    for _ in range(3000):
        a = rng.integers(-4, 5, 8) / 4
        row, column = rng.integers(6) + 0.5, rng.integers(9) + 0.5
        a[7] = -(1 + a[6] * column) / row
        a[2] = -(a[0] * column + a[1] * row) + rng.choice([0, 0, 1e-9, 0.25])
        horizon = a[6] * x + a[7] * y + 1 == 0
        undefined = any((horizon & (a[n] * x + a[n + 1] * y + a[n + 2] == 0)).any() for n in (0, 3))
        steps = pillow_methods.transform(Image.new("L", (9, 6)), (9, 6), Image.Transform.PERSPECTIVE, a.tolist(), 2)
        assert not (undefined and steps is not None), a
        outcomes.append(undefined == (steps is None))
    assert np.mean(outcomes) > 0.95
