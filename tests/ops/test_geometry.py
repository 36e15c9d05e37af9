"""Resizes, crops, flips, pads, layouts and dtypes of noise, on every backend: each equals torchvision's."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

import accel
from accel.ops.resample import rows_first
from rig.batches import noise
from tests.support.backends import BACKENDS, Backend
from tests.support.cuda import stacked
from tests.support.helpers import MEAN, STD, Named, assert_same, pictures
from tests.support.steps import FILTERS, ON_IMAGES, ON_TENSORS, TO_TENSOR, outcome


@pytest.fixture(autouse=True)
def by_itself(backend: Backend) -> Iterator[None]:
    """A kernel that is found to differ from Pillow's resize is not used; here that is a failure."""
    before = accel.stats()["fallbacks"]
    yield
    if backend.name != "dali":
        new = {reason for reason, n in accel.stats()["fallbacks"].items() if n > before.get(reason, 0)}
        assert not {reason for reason in new if "asked for the pixels" not in reason}


VECTORISED = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")

# (height, width) before and after: scales from 1/20 to 20, both orders of the passes, one axis alone
SIZES = (
    ((400, 300), (20, 15)),
    ((20, 15), (400, 300)),
    ((131, 97), (64, 61)),
    ((200, 90), (70, 85)),
    ((90, 200), (85, 70)),
    ((77, 50), (77, 131)),
    ((50, 77), (13, 77)),
    ((300, 3), (15, 60)),
    ((3, 300), (60, 15)),
    ((129, 65), (65, 33)),
    ((1, 1), (33, 65)),
    ((65, 33), (1, 1)),
)


@pytest.mark.parametrize("interpolation", FILTERS, ids=str)
def test_pillows_resize(interpolation: Any, backend: Backend) -> None:
    images = [(noise(*size, mode), list(new)) for size, new in SIZES for mode in ("RGB", "L")]
    backend.equals_torchvision(lambda: [F.resize(image, new, interpolation) for image, new in images])


def test_the_sizes_try_both_orders() -> None:
    orders = {rows_first(2, *size, *new, pillow=(13, 0)) for size, new in SIZES}
    assert orders == {True, False}


SCALES = (0.4, 1, 1.3, 1.8, 2.4, 2.8, 3.5, 5)  # 2, 1, 3, 4, 5, 6, 7 and 10 taps in each direction


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("new", [(67, 72), (30, 101)], ids=str)
def test_every_number_of_taps(new: tuple[int, int], mode: str, backend: Backend) -> None:
    """Over several tiles, flipped before and after, in each direction and in both; crops lie inside a picture."""
    sizes = [(round(down * new[0]), round(across * new[1])) for down in SCALES for across in SCALES]
    assert {rows_first(2, *size, *new, pillow=(13, 0)) for size in sizes} == {True, False}

    def flipped(image: Any, n: int) -> Any:
        image = F.hflip(image) if n % 2 else image
        return F.vflip(image) if n % 4 > 1 else image

    def made(n: int, size: tuple[int, int]) -> torch.Tensor:
        crop = F.crop(noise(size[0] + 3, size[1] + 2, mode, n), n % 4, n % 3, *size)
        return F.to_tensor(flipped(F.resize(flipped(crop, n), list(new)), n // 4))

    backend.equals_torchvision(lambda: torch.stack([made(n, size) for n, size in enumerate(sizes)]))


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", [InterpolationMode.BILINEAR, InterpolationMode.BICUBIC], ids=str)
@pytest.mark.parametrize(("size", "new"), SIZES[:-1], ids=str)
def test_torchs_resize(
    size: tuple[int, int], new: tuple[int, int], interpolation: Any, antialias: bool, backend: Backend
) -> None:
    if interpolation == InterpolationMode.BILINEAR and not VECTORISED:
        pytest.skip("torchvision interpolates in float32 here")
    image = noise(*size)
    backend.equals_torchvision(
        lambda: F2.resize(F.pil_to_tensor(image), list(new), interpolation, antialias=antialias),
    )


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("before", [True, False])
def test_borders_and_flips_before_and_after_a_resize(mode: str, before: bool, backend: Backend) -> None:
    image = noise(60, 83)

    def pipeline() -> Any:
        lazy = F.pad(image, [9, 5, 4, 7], fill=(9, 200, 31), padding_mode=mode) if before else image
        lazy = F.vflip(F.resize(lazy, [41, 70]))
        lazy = lazy if before else F.pad(lazy, [9, 5, 4, 7], fill=(9, 200, 31), padding_mode=mode)
        return F.hflip(F.crop(lazy, -3, 5, 50, 90))

    backend.equals_torchvision(pipeline)


def test_the_fill_of_the_later_pad_wins(backend: Backend) -> None:
    image = noise(20, 20)
    backend.equals_torchvision(lambda: F.pad(F.pad(image, [3], fill=(1, 2, 3)), [4], fill=(7, 8, 9)))
    backend.equals_torchvision(lambda: F.pad(F.pad(F.resize(image, [9, 9]), [3], fill=(1, 2, 3)), [4], fill=(7, 8, 9)))


def test_a_window_of_fill_alone(backend: Backend) -> None:
    image = noise(20, 20)
    found = backend.equals_torchvision(lambda: F.to_tensor(F.crop(F.resize(image, [40, 40]), 100, 0, 50, 40)))
    assert not found.any()


def test_several_resizes_see_each_others_rounded_pixels(backend: Backend) -> None:
    image = noise(150, 140)
    backend.equals_torchvision(lambda: F.resize(F.resize(F.pad(F.resize(image, [90, 80]), [5]), [33, 200]), [60, 61]))


@pytest.mark.parametrize("width", [44, 45])  # values are written four at a time, and one by one
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.int32],
    ids=str,
)
def test_dtypes_and_layouts(dtype: torch.dtype, interleaved: bool, width: int, backend: Backend) -> None:
    def pipeline() -> torch.Tensor:
        images = [noise(60 + 9 * n, 50 + 5 * n, seed=n) for n in range(3)]
        if dtype.is_floating_point:
            batch = stacked(images, lambda each: F.normalize(F.to_tensor(F.resize(each, [37, width])), MEAN, STD)).to(
                dtype
            )
        else:
            batch = stacked(images, lambda each: F2.to_dtype(F.pil_to_tensor(F.resize(each, [37, width])), dtype, True))
        return batch.contiguous(memory_format=torch.channels_last) if interleaved else batch

    backend.equals_torchvision(pipeline)


def test_a_ragged_batch_in_one_program(backend: Backend) -> None:
    """Sizes, filters, windows, modes of padding and numbers of resizes differ from image to image."""

    def pipeline() -> torch.Tensor:
        images = []
        for number, name in enumerate(pictures()):
            image = F.resize(name.open().convert("RGB"), [40 + number, 61], FILTERS[number % 6])
            if number % 3 == 0:
                image = F.pad(image, [3, 2], padding_mode="reflect")
            if number % 2:
                image = F.hflip(F.resize(image, [20, 90]))
            images.append(F.to_tensor(F.center_crop(image, [33, 47])))
        return torch.stack(images)

    backend.equals_torchvision(pipeline)


def test_one_source_in_many_places(backend: Backend) -> None:
    image = pictures()[0].open()
    backend.equals_torchvision(lambda: stacked(F.ten_crop(image, [90, 70]), F.to_tensor))


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    picture=st.sampled_from(pictures()),
    images=st.lists(ON_IMAGES, max_size=6),
    to_tensor=TO_TENSOR,
    tensors=st.lists(ON_TENSORS, max_size=2),
)
def test_any_pipeline(picture: Named, images: list[Any], to_tensor: Any, tensors: list[Any], backend: Backend) -> None:
    chain = [*images, to_tensor, *tensors]
    with accel.image_backend("torchvision"):
        expected = outcome(picture.open, chain)
    with backend.chosen():
        found = backend.computed(outcome(picture.open, chain))
    assert_same(found, expected)


def test_a_wrong_weight_would_show(backend: Backend) -> None:
    """The noise tells one filter from another and a shift by one pixel from none: the tests above can fail."""
    image = noise(60, 83)
    right, _ = backend.made(lambda: F.resize(image, [41, 70]))
    for wrong in (
        F.resize(image, [41, 70], InterpolationMode.HAMMING),
        F.resize(F.pil_to_tensor(image), [41, 70], antialias=True),
    ):
        pixels = np.asarray(wrong) if isinstance(wrong, Image.Image) else wrong.permute(1, 2, 0).numpy()
        assert not np.array_equal(np.asarray(right), pixels)


def test_another_corner_or_side_would_show(backend: Backend) -> None:
    """So would a crop that begins one row further, and a flip that is forgotten."""
    image = noise(60, 83)
    right, _ = backend.made(lambda: F.hflip(F.resize(F.crop(image, 5, 7, 40, 50), [21, 30])))
    for wrong in (
        F.hflip(F.resize(F.crop(image, 6, 7, 40, 50), [21, 30])),
        F.resize(F.crop(image, 5, 7, 40, 50), [21, 30]),
        F.vflip(F.hflip(F.resize(F.crop(image, 5, 7, 40, 50), [21, 30]))),
    ):
        assert not np.array_equal(np.asarray(right), np.asarray(wrong))
