"""Any sequence of recorded steps: fused equals one step at a time equals torchvision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import helpers
import torch
from helpers import Named, assert_same, is_late
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as F

import accel

PICTURES = helpers.pictures()
FILTERS = (Mode.NEAREST, Mode.BILINEAR, Mode.BICUBIC, Mode.BOX, Mode.HAMMING, Mode.LANCZOS)
LARGEST = 250


class Step(NamedTuple):
    """A call with its arguments, so that a failing sequence reads well."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, value: Any) -> Any:
        return self.function(value, *self.arguments)

    def __repr__(self) -> str:
        return f"{self.function.__name__}{self.arguments}"


def convert_rgb(image: Image.Image) -> Image.Image:
    return image.convert("RGB")


def copy(image: Image.Image) -> Image.Image:
    return image.copy()


def steps(function: Callable[..., Any], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda values: Step(function, values))


LENGTH = st.integers(1, 90)
OFFSET = st.integers(-25, 120)
SIDE = st.integers(0, 20)
SIZE = st.tuples(LENGTH, LENGTH).map(list)
PADDING = st.one_of(st.integers(-3, 12), st.tuples(SIDE, SIDE), st.tuples(SIDE, SIDE, SIDE, SIDE))
LEVEL = st.integers(0, 255)
FILL = st.one_of(LEVEL, st.floats(0, 255), st.none())
MODES = st.sampled_from(FILTERS)
PADDING_MODE = st.sampled_from(["constant", "edge", "reflect", "symmetric"])

ON_IMAGES = st.one_of(
    steps(F.crop, OFFSET, OFFSET, LENGTH, LENGTH),
    steps(F.center_crop, SIZE),
    steps(F.resize, SIZE, MODES),
    steps(F.resize, LENGTH, MODES, st.one_of(st.none(), st.integers(91, 120))),
    steps(F.resized_crop, OFFSET, OFFSET, LENGTH, LENGTH, SIZE, MODES),
    steps(F.hflip),
    steps(F.vflip),
    steps(F.pad, PADDING, FILL, PADDING_MODE),
    steps(convert_rgb),
    steps(copy),
)

DTYPE = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.uint8, torch.int16, torch.int32])
NUMBER = st.sampled_from([0.0, 0.5, -1.25, 3.7])
POSITIVE = st.sampled_from([0.25, 0.5, 1.0, 7.5])
ON_TENSORS = st.one_of(
    steps(F.convert_image_dtype, DTYPE),
    steps(F.normalize, st.tuples(NUMBER), st.tuples(POSITIVE)),
    steps(F.normalize, st.tuples(NUMBER, NUMBER, NUMBER), st.tuples(POSITIVE, POSITIVE, POSITIVE)),
    steps(torch.Tensor.to, DTYPE),
    steps(torch.Tensor.half),
    steps(torch.Tensor.bfloat16),
    steps(torch.Tensor.contiguous),
    steps(torch.clone),
)
TO_TENSOR = st.sampled_from([F.to_tensor, F.pil_to_tensor])


def touched(value: Any) -> Any:
    """The same value with its pixels computed: what comes next is not fused with what was."""
    if isinstance(value, Image.Image):
        value.getpixel((0, 0))
        return value
    _ = value == 0
    return value


def outcome(picture: Named, chain: list[Any], each: Callable[[Any], Any] = lambda value: value) -> Any:
    """What a chain makes of a picture, or the type of what it raises."""

    def run() -> Any:
        value: Any = picture.open()
        for step in chain:
            value = step(value)
            if min(value.size if isinstance(value, Image.Image) else value.shape) > LARGEST:
                raise OverflowError
            value = each(value)
        return value

    return helpers.outcome(run)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    picture=st.sampled_from(PICTURES),
    images=st.lists(ON_IMAGES, max_size=6),
    to_tensor=TO_TENSOR,
    tensors=st.lists(ON_TENSORS, max_size=4),
)
def test_fused_equals_stepwise_equals_torchvision(
    picture: Named, images: list[Step], to_tensor: Callable[[Any], Any], tensors: list[Step]
) -> None:
    chain: list[Any] = [*images, to_tensor, *tensors]
    expected = outcome(picture, chain)
    with accel.image_backend("cpu"):
        fused = outcome(picture, chain)
        stepwise = outcome(picture, chain, touched)
    if isinstance(expected, type):
        assert fused is expected
        assert stepwise is expected
    else:
        assert_same(fused, expected)
        assert_same(stepwise, expected)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    chosen=st.lists(st.sampled_from(PICTURES), min_size=1, max_size=5),
    images=st.lists(ON_IMAGES, max_size=4),
    size=SIZE,
)
def test_batches_of_any_sequence(chosen: list[Named], images: list[Step], size: list[int]) -> None:
    """Different files and steps, one shape: one program, equal to torchvision's stack."""

    def batch() -> Any:
        tensors = []
        for number, picture in enumerate(chosen):
            image = picture.open().convert("RGB")
            for step in images[number:]:
                image = step(image)
            tensors.append(F.to_tensor(F.resize(image, size, FILTERS[number])))
        return torch.stack(tensors)

    expected = helpers.outcome(batch)
    with accel.image_backend("cpu"):
        actual = helpers.outcome(batch)
    if isinstance(expected, type):
        assert actual is expected
    else:
        assert_same(actual, expected)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(images=st.lists(ON_IMAGES.filter(lambda step: step.function is not F.pad), max_size=6))
def test_recorded_steps_stay_late(images: list[Step]) -> None:
    with accel.image_backend("cpu"):
        image = PICTURES[0].open()
        for step in images:
            image = step(image)
        assert is_late(image)
        assert is_late(F.to_tensor(image))
