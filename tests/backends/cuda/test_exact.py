"""The cuda backend's kernels: every filter, scale, border, layout and dtype equals torchvision's."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

import accel
from accel import testing
from accel.backends.cuda import CudaBackend
from accel.backends.cuda.descriptors import COPY, STAGE, TILE_COLUMNS, TILE_ROWS
from accel.backends.cuda.host import function
from accel.ops.resample import rows_first
from tests.support.cuda import DEVICE, assert_equals_torchvision, host_only, needs_compiler, noise, on_device, stacked
from tests.support.helpers import Named, assert_same, is_late, pictures
from tests.support.steps import ON_IMAGES, ON_TENSORS, TO_TENSOR, outcome

pytestmark = needs_compiler

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FILTERS = (
    InterpolationMode.NEAREST,
    InterpolationMode.BILINEAR,
    InterpolationMode.BICUBIC,
    InterpolationMode.BOX,
    InterpolationMode.HAMMING,
    InterpolationMode.LANCZOS,
)
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


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("interpolation", FILTERS, ids=str)
@pytest.mark.parametrize(("size", "new"), SIZES, ids=str)
def test_pillows_resize(size: tuple[int, int], new: tuple[int, int], interpolation: Any, mode: str) -> None:
    image = noise(*size, mode)
    assert_equals_torchvision(lambda: F.resize(image, list(new), interpolation))


def test_the_sizes_try_both_orders() -> None:
    orders = {rows_first(2, *size, *new, pillow=(13, 0)) for size, new in SIZES}
    assert orders == {True, False}


SCALES = (0.4, 1, 1.3, 1.8, 2.4, 2.8, 3.5, 5)  # 2, 1, 3, 4, 5, 6, 7 and 10 taps in each direction


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("new", [(67, 72), (30, 101)], ids=str)
def test_every_number_of_taps(new: tuple[int, int], mode: str) -> None:
    """Over several tiles, flipped before and after, in each direction and in both; crops lie inside a picture."""
    sizes = [(round(down * new[0]), round(across * new[1])) for down in SCALES for across in SCALES]
    assert {rows_first(2, *size, *new, pillow=(13, 0)) for size in sizes} == {True, False}

    def flipped(image: Any, n: int) -> Any:
        image = F.hflip(image) if n % 2 else image
        return F.vflip(image) if n % 4 > 1 else image

    def made(n: int, size: tuple[int, int]) -> torch.Tensor:
        crop = F.crop(noise(size[0] + 3, size[1] + 2, mode, n), n % 4, n % 3, *size)
        return F.to_tensor(flipped(F.resize(flipped(crop, n), list(new)), n // 4))

    assert_equals_torchvision(lambda: torch.stack([made(n, size) for n, size in enumerate(sizes)]))


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", [InterpolationMode.BILINEAR, InterpolationMode.BICUBIC], ids=str)
@pytest.mark.parametrize(("size", "new"), SIZES[:-1], ids=str)
def test_torchs_resize(size: tuple[int, int], new: tuple[int, int], interpolation: Any, antialias: bool) -> None:
    if interpolation == InterpolationMode.BILINEAR and not VECTORISED:
        pytest.skip("torchvision interpolates in float32 here")
    image = noise(*size)
    assert_equals_torchvision(
        lambda: F2.resize(F.pil_to_tensor(image), list(new), interpolation, antialias=antialias),
    )


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("before", [True, False])
def test_borders_and_flips_before_and_after_a_resize(mode: str, before: bool) -> None:
    image = noise(60, 83)

    def pipeline() -> Any:
        late = F.pad(image, [9, 5, 4, 7], fill=(9, 200, 31), padding_mode=mode) if before else image
        late = F.vflip(F.resize(late, [41, 70]))
        late = late if before else F.pad(late, [9, 5, 4, 7], fill=(9, 200, 31), padding_mode=mode)
        return F.hflip(F.crop(late, -3, 5, 50, 90))

    assert_equals_torchvision(pipeline)


def test_the_fill_of_the_later_pad_wins() -> None:
    image = noise(20, 20)
    assert_equals_torchvision(lambda: F.pad(F.pad(image, [3], fill=(1, 2, 3)), [4], fill=(7, 8, 9)))
    assert_equals_torchvision(lambda: F.pad(F.pad(F.resize(image, [9, 9]), [3], fill=(1, 2, 3)), [4], fill=(7, 8, 9)))


def test_a_window_of_fill_alone() -> None:
    image = noise(20, 20)
    found = assert_equals_torchvision(lambda: F.to_tensor(F.crop(F.resize(image, [40, 40]), 100, 0, 50, 40)))
    assert not found.any()


def test_several_resizes_see_each_others_rounded_pixels() -> None:
    image = noise(150, 140)
    assert_equals_torchvision(lambda: F.resize(F.resize(F.pad(F.resize(image, [90, 80]), [5]), [33, 200]), [60, 61]))


@pytest.mark.parametrize("width", [44, 45])  # values are written four at a time, and one by one
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.int32],
    ids=str,
)
def test_dtypes_and_layouts(dtype: torch.dtype, interleaved: bool, width: int) -> None:
    def pipeline() -> torch.Tensor:
        images = [noise(60 + 9 * n, 50 + 5 * n, seed=n) for n in range(3)]
        if dtype.is_floating_point:
            batch = stacked(images, lambda each: F.normalize(F.to_tensor(F.resize(each, [37, width])), MEAN, STD)).to(
                dtype
            )
        else:
            batch = stacked(images, lambda each: F2.to_dtype(F.pil_to_tensor(F.resize(each, [37, width])), dtype, True))
        return batch.contiguous(memory_format=torch.channels_last) if interleaved else batch

    assert_equals_torchvision(pipeline)


def test_a_ragged_batch_in_one_program() -> None:
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

    assert_equals_torchvision(pipeline)


COLOURS = (
    lambda image: F.adjust_brightness(image, 1.3),
    lambda image: F.adjust_gamma(image, 0.7),
    F.invert,
    lambda image: F.solarize(image, 100),
    lambda image: F.posterize(image, 3),
)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("number", range(len(COLOURS)))
def test_levels_between_passes_and_at_the_end(number: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaBackend, "_on_host", lambda self: pytest.fail("the host ran them"))
    first, then = COLOURS[number], COLOURS[number - 2]
    images = [noise(60 + n, 83, mode, n) for n in range(3)]

    def transform(image: Image.Image) -> torch.Tensor:
        image = F.pad(first(F.resize(first(image), [50, 41])), [3], fill=7)
        return F.to_tensor(then(F.hflip(F.resize(image, [20, 30]))))

    assert_equals_torchvision(lambda: stacked(images, transform))
    assert_equals_torchvision(lambda: then(first(images[0])))


def test_one_source_in_many_places() -> None:
    image = pictures()[0].open()
    assert_equals_torchvision(lambda: stacked(F.ten_crop(image, [90, 70]), F.to_tensor))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    picture=st.sampled_from(pictures()),
    images=st.lists(ON_IMAGES, max_size=6),
    to_tensor=TO_TENSOR,
    tensors=st.lists(ON_TENSORS, max_size=2),
)
def test_any_pipeline(picture: Named, images: list[Any], to_tensor: Any, tensors: list[Any]) -> None:
    chain = [*images, to_tensor, *tensors]
    with accel.image_backend("torchvision"):
        expected = outcome(picture, chain)
    with accel.image_backend("cuda", device=DEVICE):
        found = outcome(picture, chain)
        if is_late(found):
            found = testing.computed(found)
    if isinstance(expected, type):
        assert found is expected
    else:
        assert_same(found, expected)


def test_v2_pipeline() -> None:
    to_floats = [v2.ToDtype(torch.float32, True), v2.Normalize(MEAN, STD), v2.ToPureTensor()]
    transform = v2.Compose([v2.ToImage(), v2.CenterCrop([70, 50]), *to_floats])
    assert_equals_torchvision(lambda: torch.stack([transform(noise(90 + n, 80, seed=n)) for n in range(3)]))


def test_a_wrong_weight_would_show() -> None:
    """The noise tells one filter from another and a shift by one pixel from none: the tests above can fail."""
    image = noise(60, 83)
    right = on_device(lambda: F.resize(image, [41, 70]))
    for wrong in (
        F.resize(image, [41, 70], InterpolationMode.HAMMING),
        F.resize(F.pil_to_tensor(image), [41, 70], antialias=True),
    ):
        pixels = np.asarray(wrong) if isinstance(wrong, Image.Image) else wrong.permute(1, 2, 0).numpy()
        assert not np.array_equal(np.asarray(right), pixels)


def stage(**fields: Any) -> Any:
    """A stage that copies, for a kernel on its own."""
    item = np.zeros(1, STAGE)
    for name, value in {"mode": COPY, "itemsize": 1, "across": 1, "planar": 1, **fields}.items():
        item[name] = value
    return item


def axis(start: int, stride: int) -> tuple[int, ...]:
    return 0, 0, 0, stride, start, 1, 0, 0


def run_one_block(item: Any) -> None:
    owners = np.zeros(1, np.int32)
    function("emit3")(1, item.ctypes.data, owners.ctypes.data)


@host_only
def test_a_source_beyond_two_gigabytes() -> None:
    height, width = 40_000, 18_000
    pixels = np.frombuffer(mmap.mmap(-1, height * width * 3), np.uint8).reshape(height, width, 3)  # untouched pages
    pixels[-9:, -7:] = corner = np.random.default_rng(0).integers(1, 256, (9, 7, 3), np.uint8)
    out = np.zeros((3, 9, 7), np.uint8)
    where = {"source": pixels.ctypes.data, "target": out.ctypes.data, "height": 9, "width": 7}
    run_one_block(stage(**where, rows=axis(height - 9, width * 3), columns=axis(width - 7, 3)))
    assert np.array_equal(out, corner.transpose(2, 0, 1))


@host_only
@pytest.mark.parametrize("planar", [True, False])
def test_a_result_beyond_four_gigabytes(planar: bool) -> None:
    side = 38_400  # whole tiles; three channels of bytes are 4.4e9
    rows, columns = side // TILE_ROWS, side // TILE_COLUMNS
    source = np.random.default_rng(0).integers(1, 256, (TILE_ROWS, TILE_COLUMNS, 3), np.uint8)
    out = np.frombuffer(mmap.mmap(-1, side * side * 3), np.uint8)
    item = stage(  # the last tile shows the source
        source=source.ctypes.data, target=out.ctypes.data, height=side, width=side, across=columns, planar=planar,
        first_block=1 - rows * columns, rows=axis(TILE_ROWS - side, TILE_COLUMNS * 3),
        columns=axis(TILE_COLUMNS - side, 3),
    )  # fmt: skip
    run_one_block(item)
    image = out.reshape(3, side, side).transpose(1, 2, 0) if planar else out.reshape(side, side, 3)
    assert np.array_equal(image[-TILE_ROWS:, -TILE_COLUMNS:], source)
