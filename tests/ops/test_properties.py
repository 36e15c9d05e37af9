"""Any sequence of recorded steps: fused equals one step at a time equals torchvision."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.helpers import Named, assert_equal_runs, assert_same, is_lazy
from tests.support.steps import FILTERS, ON_IMAGES, ON_TENSORS, PICTURES, SIZE, TO_TENSOR, Step, outcome


def touched(value: Any) -> Any:
    """The same value with its pixels computed: what comes next is not fused with what was."""
    if isinstance(value, Image.Image):
        value.load()
        return value
    _ = value == 0
    return value


def test_fused_equals_stepwise_equals_torchvision(thorough: bool) -> None:
    """The sweep tries many; what is fused of files and of pixels is tried in test_geometry and test_from_pixels too."""

    examples = 400 if thorough else 200

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.sampled_from(PICTURES), st.lists(ON_IMAGES, max_size=6), TO_TENSOR, st.lists(ON_TENSORS, max_size=4))
    def check(picture: Named, images: list[Step], to_tensor: Callable[[Any], Any], tensors: list[Step]) -> None:
        chain: list[Any] = [*images, to_tensor, *tensors]
        fused = assert_equal_runs(lambda: outcome(picture.open, chain))
        with accel.image_backend("cpu"):
            assert_same(outcome(picture.open, chain, touched), fused)

    check()


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

    assert_equal_runs(lambda: helpers.outcome(batch))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(images=st.lists(ON_IMAGES.filter(lambda step: step.function is not F.pad), max_size=6))
def test_recorded_steps_stay_lazy(images: list[Step]) -> None:
    with accel.image_backend("cpu"):
        image = PICTURES[0].open()
        for step in images:
            image = step(image)
        assert is_lazy(image)
        assert is_lazy(F.to_tensor(image))
